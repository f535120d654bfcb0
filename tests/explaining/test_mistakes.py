"""Mistakes that people make with the library end in one sentence that says what to do."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

import ercr
from ercr.errors import InputError, UnsupportedModel

FAMILIES = ("qwen2_vl", "llava", "internvl")
PICTURE = Image.new("RGB", (56, 56))


def test_a_name_instead_of_a_model_gets_the_call_that_loads_it():
    with pytest.raises(InputError, match=r"from_pretrained\('photo-mini'\)"):
        ercr.Explainer("photo-mini")
    with pytest.raises(InputError, match="loaded Hugging Face model, not dict"):
        ercr.Explainer({})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"generation": {"temprature": 0.5}}, "no setting 'temprature'.* Did you mean 'temperature'"),
        ({"generation": {"stop_strings": ["."]}}, "stop_strings is not supported"),
        ({"generation": "beam"}, "must be a dict"),
        ({"method": 5}, "by text such as"),
        ({"temperature": 0.5}, r"pass it as generation=\{'temperature': …\}"),
    ],
)
def test_decoding_options_are_checked_before_the_model_runs(load, options, told):
    with pytest.raises(InputError, match=told):
        load("qwen2_vl").explain(PICTURE, answer="a", **options)


@pytest.mark.parametrize(("of", "other"), [(a, b) for a in FAMILIES for b in FAMILIES if a != b])
def test_a_processor_of_another_model_is_refused_before_anything_runs(load, of, other):
    """Without the check, each foreign part would fail later with an error of another library."""
    mine, foreign = load(of).adapter, load(other).adapter
    with pytest.raises(InputError, match=r"image processor .* does not take: pass the model's own processor"):
        ercr.Explainer(mine.model, (mine.tokenizer, foreign.image_processor))
    with pytest.raises(InputError, match="tokenizer does not belong to this model"):
        ercr.Explainer(mine.model, (foreign.tokenizer, mine.image_processor))


class Packed(torch.nn.Module):
    """A language head whose weight is not a float matrix; in some quantised layers it is a method."""

    def weight(self):
        return None


@pytest.mark.parametrize("kind", ["a method", "8-bit numbers", "no head"])
def test_a_head_that_cannot_be_read_is_refused(load, monkeypatch, kind):
    adapter = load("llava").adapter
    rows, width = adapter.head.weight.shape
    eight = torch.nn.Linear(width, rows, bias=False)
    eight.weight = torch.nn.Parameter(torch.zeros(rows, width, dtype=torch.int8), requires_grad=False)
    head = {"a method": Packed(), "8-bit numbers": eight, "no head": None}[kind]
    monkeypatch.setattr(adapter.model, "get_output_embeddings", lambda: head)
    with pytest.raises(UnsupportedModel, match="no language head" if head is None else "head is quantised .*lm_head"):
        ercr.Explainer(adapter.model, (adapter.tokenizer, adapter.image_processor))
