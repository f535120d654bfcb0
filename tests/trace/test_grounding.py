"""Words without their picture and at visual tokens: as in the model's own passes, in batches and behind one prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import ercr
from ercr.errors import InputError
from ercr.models.chat import as_messages
from ercr.trace import Needs, TraceRequest, trace_samples
from ercr.trace.answers import answers_about, log_probabilities_behind
from ercr.trace.lens import Rivals, spelt, vocabulary_sizes
from ercr.trace.ranked import entropies
from ercr.trace.without_picture import text_alone, without_picture
from tests.families.checks import picture as blobs
from tests.families.registry import families, save

PROMPT, ANSWERS = "What is in the picture?", ("a dog and a cat on a sofa", "red umbrella")
OWN = ("qwen2_vl", "llava", "internvl")
FOUND = (
    "paligemma",
    "gemma3_pan_and_scan",
    "idefics3",
)  # by the generic adapter; the first one's picture sees the text


def requests(adapter, *pictures):
    return [TraceRequest(image, adapter.prepare(image, as_messages(PROMPT))) for image in pictures]


def encoded(adapter):
    return [adapter.encode_answer(text) for text in ANSWERS]


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    def make(name):
        folder = save(families()[name], tmp_path_factory.mktemp(name))
        return ercr.Explainer.from_pretrained(str(folder), generic=True)

    return make


def plain_text_pass(adapter, request, answer):
    """The model's own forward over the prompt's text without image tokens, and the answer."""
    prompt = text_alone(request.prepared, adapter.feature_tokens)
    given = adapter.collate([prompt.with_answer(answer)], 0)
    with torch.no_grad():
        logs = adapter.model(**given).logits[0].log_softmax(-1)
    at = torch.arange(len(prompt.input_ids), len(prompt.input_ids) + len(answer))
    return logs[at - 1, answer].numpy()


@pytest.mark.parametrize("name", OWN)
def test_words_without_their_picture_are_the_models_own_on_text_and_batches_change_nothing(load, picture, name):
    adapter = load(name, "float64").adapter
    made, answers = requests(adapter, picture, picture.rotate(90, expand=True)), encoded(adapter)
    together = without_picture(adapter, made, answers)
    assert list(together) == ["text"]
    for request, answer, logs in zip(made, answers, together["text"], strict=True):
        np.testing.assert_allclose(logs, plain_text_pass(adapter, request, answer), atol=1e-5)
        alone = without_picture(adapter, [request], [answer])["text"][0]
        np.testing.assert_allclose(logs, alone, atol=1e-6)


@pytest.mark.parametrize("name", FOUND)
def test_the_same_for_models_of_the_generic_adapter(family, name):
    explainer = family(name)
    adapter, image = explainer.adapter, blobs(130, 90)
    (request,), answer = requests(adapter, image), encoded(explainer.adapter)[0]
    found = without_picture(adapter, [request], [answer])["text"][0]
    np.testing.assert_allclose(found, plain_text_pass(adapter, request, answer), atol=1e-4)
    text = adapter.tokenizer.decode(text_alone(request.prepared, adapter.feature_tokens).input_ids)
    assert PROMPT.split()[0] in text
    assert not torch.isin(
        torch.tensor(sorted({int(t) for t in request.prepared.input_ids[request.prepared.visual]})),
        text_alone(request.prepared, adapter.feature_tokens).input_ids,
    ).any()


@pytest.mark.slow
def test_models_without_cells_are_read_without_a_picture_or_with_a_grey_one(family):
    """A resampler that takes no prompt without a picture, and cross-attention, which does."""
    for name, kind in (("blip2", "grey"), ("idefics2", "text")):
        explainer = family(name)
        found = explainer.check(blobs(130, 90), PROMPT, answer=ANSWERS[0], method="occlusion:grid=2")
        grounding = found.words[1].grounding
        assert list(grounding.image_effect) == [kind] == found.provenance["grounding"]["without"]
        assert grounding.lens_rank is grounding.focus is None
        assert 0 <= grounding.seen <= 1


def test_another_picture_is_shown_in_the_same_size(load, picture):
    adapter = load("llava", "float64").adapter
    (request,), answer = requests(adapter, picture), encoded(adapter)[0]
    grey = TraceRequest(picture, adapter.prepare(blank(picture), as_messages(PROMPT)), answer)
    expected = trace_samples(adapter, [grey], Needs(), {})[0].text.log_probabilities[-len(answer) :]
    found = without_picture(adapter, [request], [answer], ("grey", "noise", "text"))
    assert list(found) == ["grey", "noise", "text"]
    np.testing.assert_allclose(found["grey"][0], expected, atol=1e-6)
    assert not np.allclose(found["noise"][0], expected, atol=1e-3)
    with pytest.raises(InputError, match="replaced by text, grey"):
        without_picture(adapter, [request], [answer], ("pink",))


def blank(picture):
    from PIL import Image

    return Image.new("RGB", picture.size, (128, 128, 128))


@pytest.mark.parametrize("depths", [(), (0.5,)])
def test_ranks_and_probabilities_at_visual_tokens_are_those_of_all_logits(load, picture, depths):
    adapter = load("qwen2_vl", "float64").adapter
    answer = encoded(adapter)[0]
    request = replace(requests(adapter, picture)[0], answer=answer)
    trace = trace_samples(adapter, [request], Needs(lens=depths), {})[0]
    whole = request.prepared.with_answer(answer)
    with torch.no_grad():
        out = adapter.model(**adapter.collate([whole], 0), output_hidden_states=True)
        middle = adapter.final_norm(out.hidden_states[round(0.5 * len(adapter.blocks))])[0, request.prepared.visual]
        states = [*([middle] if depths else []), out.hidden_states[-1][0, request.prepared.visual]]
        every = torch.stack([adapter.head(one) for one in states])  # [K, N, V]
    np.testing.assert_allclose(trace.lens, torch.stack(states), atol=1e-8)
    found = spelt(adapter, [trace.lens], [answer])[0]
    logs = every.log_softmax(-1)[..., answer]
    rank = 1 + (every[..., None, :] > every[..., answer][..., None]).sum(-1)
    np.testing.assert_allclose(found.probability, logs[-1].amax(0).exp(), rtol=1e-5)
    np.testing.assert_array_equal(found.rank, rank[-1].amin(0))
    np.testing.assert_allclose(found.best_probability, logs.amax((0, 1)).exp(), rtol=1e-5)
    np.testing.assert_array_equal(found.best_rank, rank.amin((0, 1)))
    size = (every[-1][:, answer] - every[-1].mean(-1, keepdim=True)) / every[-1].std(-1, keepdim=True)
    np.testing.assert_allclose(found.size, size.amax(0), rtol=1e-4)


def test_focus_is_one_for_one_place_and_nothing_for_all_alike(load):
    from ercr.trace.lens import _focus

    own = torch.zeros(50, 3, dtype=torch.float64)
    own[7, 0] = 40.0
    own[:, 2] = own[:, 0] * 0.9  # explained by the first word
    focus = _focus(own)
    assert focus[0] == pytest.approx(1, abs=1e-6)
    assert focus[1] == pytest.approx(0, abs=1e-9)
    assert focus[2] == pytest.approx(0, abs=1e-6)


def test_sizes_rivals_and_entropy_are_those_of_all_logits(load, picture):
    """Of a vocabulary that is smaller than the sample of it, so that deviations are exact."""
    adapter = load("llava", "float64").adapter
    answer = encoded(adapter)[0]
    request = replace(requests(adapter, picture)[0], answer=answer)
    trace = trace_samples(adapter, [request], Needs(lens=()), {})[0]
    with torch.no_grad():
        every = adapter.head(trace.lens[-1])  # [N, V]
        said = adapter.head(trace.text.emit_states[trace.prompts :])
    sizes = (every - every.mean(-1, keepdim=True)) / every.std(-1, keepdim=True)
    found = spelt(adapter, [trace.lens], [answer])[0]
    np.testing.assert_allclose(found.size, sizes.amax(0)[answer], rtol=1e-5)
    np.testing.assert_allclose(found.mean, sizes.mean(0)[answer], rtol=1e-4, atol=1e-6)
    largest, means = vocabulary_sizes(adapter, trace.lens[-1])
    np.testing.assert_allclose(largest, sizes.amax(0), rtol=1e-5)
    np.testing.assert_allclose(means, sizes.mean(0), rtol=1e-4, atol=1e-6)
    shares, others = said.softmax(-1).topk(4)
    found = spelt(adapter, [trace.lens], [answer], [Rivals(others, shares)])[0]
    for row, gap in enumerate(found.lead):
        rivals = [(float(share), int(other)) for share, other in zip(shares[row], others[row], strict=True)]
        rivals = [(share, float(sizes[:, other].max())) for share, other in rivals if other != answer[row]]
        mean = sum(share * size for share, size in rivals) / sum(share for share, _ in rivals)
        assert float(gap) == pytest.approx(float(sizes[:, answer[row]].max()) - mean, rel=1e-4)
    logs = said.log_softmax(-1)
    expected = torch.distributions.Categorical(logits=logs).entropy()
    with torch.no_grad():
        found = entropies(adapter, trace.text.emit_states[trace.prompts :])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", OWN)
def test_answers_behind_one_prompt_are_those_of_single_runs(load, picture, name):
    adapter = load(name, "float64").adapter
    (request,), answers = requests(adapter, picture), encoded(adapter)
    needs = Needs((0.5, 1.0), lens=(0.5,))
    for answer, (trace, inside) in zip(answers, answers_about(adapter, request, answers, needs), strict=True):
        single = trace_samples(adapter, [replace(request, answer=answer)], replace(needs, replay=True), {})[0]
        np.testing.assert_allclose(trace.text.log_probabilities, single.text.log_probabilities, atol=1e-5)
        for ours, theirs in zip(trace.views, single.views, strict=True):
            np.testing.assert_allclose(ours.states, theirs.states, atol=1e-8)
        np.testing.assert_allclose(trace.lens, single.lens, atol=1e-8)
        replay = single.replay
        attention = replay.attentions()
        for layer, share in enumerate(inside.attention):
            rows = attention[layer].mean_rows(replay.emitting[single.prompts :])
            np.testing.assert_allclose(share, rows[:, replay.visual].sum(-1), atol=1e-6)
        own = replay.states(len(adapter.blocks) - 1)[replay.own[single.prompts :]]
        np.testing.assert_allclose(inside.own, own, atol=1e-8)
    logs = log_probabilities_behind(adapter, request.prepared, answers)
    single = trace_samples(adapter, [replace(request, answer=answers[1])], Needs(), {})[0]
    np.testing.assert_allclose(logs[1], single.text.log_probabilities[single.prompts :], atol=1e-5)
