"""Captured passes, padded to common sizes, give what plain ones give; what only a GPU has is stood in for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import ercr
from ercr.models import packed
from ercr.models.families import qwen2_vl
from ercr.models.packed import _is_product, _product
from ercr.trace import compiled, speaking
from ercr.trace.graphs import Graphs
from tests.explaining.test_bulk import PROMPT, pictures, same

RUN, CAPTURE = Graphs.run, Graphs.capture


class Replayed:
    """Stands for a captured graph: what was captured runs again."""

    def __init__(self, function):
        self.replay = function


def by_edges(query, key, value, edges, longest, scale, causal):
    """The kernel for packed samples, one sample after the other; it reads edges and never lengths."""
    found = torch.full_like(query, torch.nan)
    for start, stop in zip(edges.tolist(), edges.tolist()[1:], strict=False):
        own = [part[start : min(stop, start + longest)].transpose(0, 1)[None] for part in (query, key, value)]
        seen = F.scaled_dot_product_attention(*own, scale=scale, is_causal=causal, enable_gqa=True)
        found[start : start + own[0].shape[2]] = seen[0].transpose(0, 1)
    return torch.nan_to_num(found)


@pytest.fixture
def captured(monkeypatch, checkpoint):
    """An explainer with compile=True as on a GPU, and how often each key of a pass was captured."""
    keys = []

    def run(self, key, inputs, function, keep=()):
        keys.append(key)
        return function(**{name: value.clone() for name, value in inputs.items()}).clone()

    def capture(self, function):
        function()
        return Replayed(function)

    set_up = Graphs.__init__

    def active(self, device):
        set_up(self, device)
        self.active = True

    monkeypatch.setattr(Graphs, "__init__", active)
    monkeypatch.setattr(Graphs, "run", run)
    monkeypatch.setattr(Graphs, "capture", capture)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: None)
    monkeypatch.setattr(packed, "has_flash", lambda states: True)
    monkeypatch.setattr(packed, "flash", by_edges)
    monkeypatch.setattr(packed, "_FEWEST_BLOCKS", 1)
    fit = compiled.fit_tower
    monkeypatch.setattr(compiled, "fit_tower", lambda tower, half, fuse: fit(tower, True, fuse))
    return lambda family: (ercr.Explainer.from_pretrained(str(checkpoint(family)), compile=True), keys)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "llava", "internvl"])
def test_padded_and_captured_passes_equal_plain_ones(captured, load, family, monkeypatch):
    monkeypatch.setattr(qwen2_vl, "_COMMON", (64, 256, 512, 1024, 2048))
    explainer, keys = captured(family)
    plain, images = load(family), pictures()
    assert explainer.adapter.compiled.packs
    single = [plain.explain(image, PROMPT, max_new_tokens=7) for image in images]
    for image, expected in zip(images, single, strict=True):
        same(expected, explainer.explain(image, PROMPT, max_new_tokens=7))
    prompts = {key for key in keys if key[0] == "prompts"}
    assert len(prompts) < len({image.size for image in images}) * 2  # the sizes share graphs of prompts and of views
    for one, other in zip(single, explainer.explain_batch(images, PROMPT, max_new_tokens=7, batch_size=3), strict=True):
        same(one, other)


def test_slots_and_answers_grow_while_others_speak(captured, load, monkeypatch):
    monkeypatch.setattr(speaking, "_ROOM", 2)
    monkeypatch.setattr(speaking, "_PLACES", 8)
    explainer, _ = captured("qwen2_vl")
    jobs = [(image, PROMPT + " Well?" * number) for number, image in enumerate(pictures())]
    options = {"max_new_tokens": 20, "generation": {"eos_token_id": []}, "method": "cam"}
    found = explainer.explain_iter(jobs, batch_size=3, **options)
    for (image, prompt), other in zip(jobs, found, strict=True):
        expected = load("qwen2_vl").explain(image, prompt, **options)
        assert other.text == expected.text
        np.testing.assert_allclose(other.maps, expected.maps, atol=1e-5)


def test_a_pass_that_cannot_be_captured_runs_as_it_is(captured, load, monkeypatch):
    explainer, _ = captured("qwen2_vl")

    def refused(self, function):
        function()
        raise RuntimeError("not permitted while capturing")

    monkeypatch.setattr(Graphs, "run", RUN)
    monkeypatch.setattr(Graphs, "capture", CAPTURE)
    monkeypatch.setattr(Graphs, "_capture", refused)
    image = pictures()[0]
    with pytest.warns(UserWarning, match="without a CUDA graph"):
        found = [explainer.explain(image, PROMPT, max_new_tokens=7) for _ in range(2)]
    for one in found:
        same(load("qwen2_vl").explain(image, PROMPT, max_new_tokens=7), one)


def test_a_prompt_without_room_for_its_answer_is_refused_when_compiled(captured):
    explainer, _ = captured("llava")
    with pytest.raises(ercr.errors.InputError, match="4096 positions"):
        explainer.explain(pictures()[0], PROMPT, max_new_tokens=10**6)


def test_an_interrupted_bulk_run_leaves_nothing_behind(load):
    explainer, images = load("qwen2_vl"), pictures()
    coming = explainer.explain_iter(images * 3, PROMPT, method="cam", max_new_tokens=3, batch_size=2)
    next(coming)
    coming.close()
    again = explainer.explain_batch(images, PROMPT, method="cam", max_new_tokens=3)
    np.testing.assert_allclose(
        again[0].maps, explainer.explain(images[0], method="cam", prompt=PROMPT, max_new_tokens=3).maps, atol=2e-6
    )


def test_a_convolution_without_overlap_is_a_product():
    made = torch.nn.Conv2d(3, 8, 14, 14)
    pictures = torch.rand(2, 3, 100, 57)
    assert _is_product(made)
    assert not _is_product(torch.nn.Conv2d(3, 8, 14, 7))
    torch.testing.assert_close(_product(made, pictures), made(pictures), atol=1e-5, rtol=1e-5)
