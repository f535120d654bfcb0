"""Extreme requests, and models that compute NaN: a correct result or an error of one sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ercr
from ercr.errors import CheckpointError, InputError, ModelStateError
from ercr.methods import methods
from ercr.trace.greedy import GreedyDecoder
from tests.attacks.pictures import sentence_trouble

ENDLESS = {"eos_token_id": []}


@pytest.fixture
def explainer(checkpoint):
    return ercr.Explainer.from_pretrained(str(checkpoint("llava")), dtype="float32")


def refused(kind: type[Exception], call, *given, **named) -> str:
    with pytest.raises(kind) as raised:
        call(*given, **named)
    assert sentence_trouble(str(raised.value)) is None
    return str(raised.value)


def test_the_buffer_for_an_answer_grows_with_it(explainer, picture, monkeypatch):
    """max_new_tokens alone allocates nothing, and an answer for which the buffer grew several times is the same."""
    lengths = []
    append = GreedyDecoder.append_tokens

    def recorded(self, states):
        lengths.append(self.tokens.shape[1])
        return append(self, states) and self.length < 40

    monkeypatch.setattr(GreedyDecoder, "append_tokens", recorded)
    whole = explainer.explain(picture, "x", max_new_tokens=10**8, generation=ENDLESS)
    assert max(lengths) == 256
    monkeypatch.setattr("ercr.trace.greedy._INITIAL_LENGTH", 3)
    lengths.clear()
    grown = explainer.explain(picture, "x", max_new_tokens=10**8, generation=ENDLESS)
    assert sorted(set(lengths)) == [3, 6, 12, 24, 48]
    assert grown.text == whole.text
    np.testing.assert_array_equal(grown.maps, whole.maps)


def test_a_compiled_answer_is_bounded_by_the_positions_of_the_model(explainer, picture):
    from ercr.trace.compiled import Compiled

    explainer.adapter.compiled = Compiled(explainer.adapter)
    said = refused(InputError, explainer.explain, picture, "x", max_new_tokens=10**8)
    assert "4096 positions" in said


@pytest.mark.parametrize("longest", [0, -1, 2.5, "9", None])
def test_an_answer_is_a_whole_number_of_tokens(explainer, picture, longest):
    assert "whole number" in refused(InputError, explainer.explain, picture, "x", max_new_tokens=longest)


@pytest.mark.parametrize("ids", [[-1], [3, 10**6], [10**30], []])
def test_token_ids_outside_the_vocabulary_are_refused(explainer, picture, ids):
    refused(InputError, explainer.answer_log_probabilities, [picture], "x", ids)


def test_half_a_surrogate_pair_is_refused_wherever_text_goes_in(explainer, picture):
    half = "a \ud800 dog"
    turns = [{"role": "user", "content": half}, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    for prompt, answer in ((half, None), ("x", half), (turns, None)):
        assert "surrogate" in refused(InputError, explainer.explain, picture, prompt, answer=answer)
    assert "surrogate" in refused(InputError, lambda: list(explainer.stream(picture, half)))
    refused(InputError, explainer.explain, picture, "x", method=half)
    refused(CheckpointError, ercr.Explainer.from_pretrained, half)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(explainer, picture):
    explainer.adapter.vocabulary = 5
    assert "same checkpoint" in refused(CheckpointError, explainer.explain, picture, "x")


@pytest.mark.parametrize("part", ["lm_head", "language_model.norm"])
def test_huge_weights_give_numbers_or_one_sentence_and_never_nan(explainer, picture, part):
    with torch.no_grad():
        for name, weight in explainer.adapter.model.named_parameters():
            if part in name:
                weight.view(-1)[::7].mul_(1e30)
    ends = []
    for method in [*methods(), "tam:compat=true"]:
        found = ended(explainer.explain, picture, "x", method=method, answer="a dog")
        ends.append(isinstance(found, str))
        if not isinstance(found, str):
            assert np.isfinite(found.maps).all()
            assert (found.maps >= 0).all()
            assert (found.maps <= 1 + 1e-6).all()
    assert set(ends) == {True, False}
    for method in ("tam", "ercr", "cam"):
        steps = ended(lambda chosen: list(explainer.stream(picture, "x", method=chosen, max_new_tokens=3)), method)
        assert isinstance(steps, str) or all(np.isfinite(step.map).all() for step in steps)


def ended(call, *given, **named):
    """What a call returns, or the sentence that it ends in."""
    try:
        return call(*given, **named)
    except ModelStateError as error:
        return str(error)
