"""Whole methods against independent computations on real forward passes of tiny models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from ercr.errors import InputError, UnknownMethod
from ercr.methods import methods, resolve, tam_compat
from ercr.methods.ercr import ErcrSettings, recompose
from ercr.models.chat import as_messages
from ercr.trace import TraceRequest, trace_samples
from tests.conftest import FAMILIES
from tests.methods import reference

PROMPT = "Describe this image."
ANSWER = "a photo of a dog and a cat on a sofa ."


def full_pass(explainer, prepared):
    """Final hidden states of every position by the public flag, and the whole vocabulary's logits."""
    adapter = explainer.adapter
    inputs = adapter.collate([prepared], 0)
    with torch.no_grad():
        out = adapter.model(**inputs, output_hidden_states=True)
    return out.hidden_states[-1][0].numpy(), out.logits[0].numpy()


@pytest.fixture(scope="module")
def case(load, picture):
    """Everything the references need, for a family: prepared sample, answer ids and full-pass states."""

    def make(family, picture=picture):
        explainer = load(family, "float64")
        adapter = explainer.adapter
        prepared = adapter.prepare(picture, as_messages(PROMPT))
        answer = adapter.encode_answer(ANSWER)
        states, logits = full_pass(explainer, prepared.with_answer(answer))
        ids = prepared.with_answer(answer).input_ids
        rows = torch.cat([prepared.prompt, torch.arange(len(prepared.input_ids), len(ids))])
        weight = adapter.head.weight.detach().numpy()
        return explainer, prepared, ids, rows, states, logits, weight

    return make


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl_single"])
def test_ercr_equals_plain_numpy_from_pixels_to_map(case, picture, family):
    picture = picture.crop((0, 0, 90, 90))  # no crop, no padding: those are the geometry tests' business
    explainer, prepared, ids, rows, states, logits, weight = case(family, picture)
    adapter = explainer.adapter
    views = []
    for scale in (0.5, 0.75):
        view = adapter.view(picture, prepared, scale, "interpolate")
        # the same question behind the image: what comes later must not matter (causal decoder)
        tail = prepared.input_ids[int(prepared.visual[-1]) + 1 :]
        with adapter.view_context("interpolate"):
            seen, _ = full_pass(explainer, view.with_answer(tail))
        views.append((seen[view.visual], view.geometry.grid))
    views.append((states[prepared.visual], prepared.geometry.grid))
    expected, alphas, betas = reference.ercr(views, prepared.geometry.grid, weight[ids[rows]], logits[rows - 1])
    explanation = explainer.explain(picture, PROMPT, answer=ANSWER, views="interpolate")
    np.testing.assert_allclose(explanation.maps, expected, atol=2e-6)
    np.testing.assert_allclose(explanation.beta, betas, atol=1e-5)
    for t, row in enumerate(alphas):
        np.testing.assert_allclose(explanation.alpha[t, :t], row, atol=1e-6)


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl_single"])
def test_cam_and_tam_equal_plain_numpy(case, picture, family):
    explainer, prepared, ids, rows, states, _logits, weight = case(family)
    grid = prepared.geometry.grid
    targets = weight[ids[rows]]
    image = np.clip(targets @ states[prepared.visual].T, 0, None).reshape(-1, *grid)
    cam = explainer.explain(picture, PROMPT, answer=ANSWER, method="cam")
    np.testing.assert_allclose(cam.maps, [reference.minmax(m) for m in image], atol=1e-6)
    read = torch.where(rows < len(prepared.input_ids), rows, rows - 1)
    text = np.clip(targets @ states[read].T, 0, None)
    expected = reference.tam(image, text, ids[rows].tolist(), len(prepared.prompt))
    tam = explainer.explain(picture, PROMPT, answer=ANSWER, method="tam")
    np.testing.assert_allclose(tam.maps, expected, atol=1e-6)


def public_tam(explainer, prepared, ids, logits):
    """Section by section what TAM's public code does to whole-vocabulary logits, one token after the other."""
    tokenizer = explainer.adapter.tokenizer
    start, length = int(prepared.prompt[0]), len(prepared.input_ids)
    stop = int(prepared.prompt[-1]) + 1

    def strings(part):
        text = tokenizer.batch_decode([part], skip_special_tokens=False, clean_up_tokenization_spaces=False)[0]
        return tokenizer.tokenize(text)

    prompt, answer = strings(ids[start:stop].tolist()), strings(ids[length:].tolist())
    words, records = prompt + answer, []

    def explain(cls, upto, index):
        scores = np.clip(logits[:upto, cls].astype(np.float32), 0, None)
        text = np.concatenate([scores[start:stop], scores[length - 1 : length], scores[length:]])
        image = scores[prepared.visual.numpy()]
        records.append(image)
        if len(records) > 1 and index < len(words):
            others = [i for i in range(index) if words[i] != words[index]]
            w = text[others]
            w = w / (w.sum() + 1e-8)
            context = (np.stack([records[i] for i in others], 0) * w.reshape(-1, 1)).sum(0)
            factor = minimize_scalar(lambda x: np.sum((image - context * x) ** 2)).x
            image = np.clip(image - context * factor, 0, None)
        together = np.concatenate([image, text[:-1]])
        together = (together - together.min()) / (together.max() - together.min())
        grid = together[: len(image)].reshape(prepared.geometry.grid)
        padded, out = np.pad(grid, 1, mode="reflect"), np.zeros_like(grid)
        ranks = np.arange(9) - 4
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                window = np.sort(padded[i : i + 3, j : j + 3].flatten())
                if window.mean() > 0:
                    sigma = window.std() / window.mean()
                    with np.errstate(all="ignore"):
                        kernel = np.exp(-(ranks**2) / (2 * sigma**2))
                        out[i, j] = (window * (kernel / np.sum(kernel))).sum()
        return (np.nan_to_num(out, nan=0) * 255).astype("uint8")

    first = explain(int(logits[start].argmax()), length, 0)
    for t in range(1, len(prompt)):
        explain(int(ids[start + t]), length, t)
    explain(int(ids[length - 1]), length, len(prompt))
    later = range(1, len(ids) - length)
    return np.array([first, *(explain(int(ids[length + r]), length + r, len(prompt) + r) for r in later)])


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "llava", "internvl_single"])
def test_tam_compat_is_the_public_code_bit_for_bit(case, picture, family):
    explainer, prepared, ids, _, _, logits, _ = case(family)
    expected = public_tam(explainer, prepared, ids, logits)
    explanation = explainer.explain(picture, PROMPT, answer=ANSWER, method="tam", compat=True)
    ours = np.round(explanation.maps[len(prepared.prompt) :] * 255).astype(np.uint8)
    assert expected.std() > 1
    np.testing.assert_array_equal(ours, expected)


def test_tam_compat_removes_interference_and_filters_in_the_public_codes_precision():
    rng = np.random.default_rng(0)
    image, text = rng.random((4, 30), np.float32) * 9, rng.random(4, np.float32)
    found = tam_compat._without_interference(3, image, text, ["a", "b", "c", "a"])
    context = (image[1:3] * (text[1:3] / (text[1:3].sum() + 1e-8)).reshape(-1, 1)).sum(0)
    factor = minimize_scalar(lambda x: np.sum((image[3] - context * x) ** 2)).x
    np.testing.assert_array_equal(found, np.clip(image[3] - context * factor, 0, None), strict=True)
    filtered = tam_compat._rank_filter(found.reshape(5, 6))
    padded, ranks = np.pad(found.reshape(5, 6), 1, mode="reflect"), np.arange(9) - 4
    for i, j in np.ndindex(5, 6):
        window = np.sort(padded[i : i + 3, j : j + 3].flatten())
        kernel = np.exp(-(ranks**2) / (2 * (window.std() / window.mean()) ** 2))
        assert filtered[i, j] == (window * (kernel / np.sum(kernel))).sum()


def test_recomposed_map_is_the_least_squares_consensus_of_the_views(load, picture):
    explainer = load("qwen2_vl", "float64")
    prepared = explainer.adapter.prepare(picture, as_messages(PROMPT))
    sample = TraceRequest(picture, prepared, explainer.adapter.encode_answer(ANSWER))
    settings = ErcrSettings(scales=(0.5, 0.75, 1.0), weights=(1.0, 2.0, 5.0))
    trace = trace_samples(explainer.adapter, [sample], resolve("ercr")[0].needs(settings), {})[0]
    rows = slice(0, len(trace.rows))
    whole = recompose(trace, rows, settings).maps
    single = torch.stack([recompose(trace, rows, ErcrSettings(scales=(s,))).maps for s in settings.scales])

    def disagreement(candidate):
        return sum(w * ((candidate - view) ** 2).sum() for w, view in zip((1.0, 2.0, 5.0), single, strict=True))

    least = disagreement(whole)
    for step in (1e-3, -1e-3):
        noise = torch.randn(whole.shape, dtype=whole.dtype, generator=torch.Generator().manual_seed(1))
        assert disagreement(whole + step * noise) > least


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", list(methods()))
def test_every_method_explains_every_family(load, picture, family, method):
    explanation = load(family).explain(picture, PROMPT, answer=ANSWER, method=method)
    assert explanation.text == ANSWER
    assert explanation.maps.shape == (len(explanation.text_tokens), *explanation.geometry.grid)
    assert np.isfinite(explanation.maps).all()
    assert explanation.maps.min() >= 0
    assert explanation.maps.max() <= 1 + 1e-6
    assert explanation.maps.std() > 0


SWITCHES = [
    {"views": 1}, {"views": 5}, {"aggregate": "max"}, {"context": "tam"}, {"context": "mean"}, {"context": "none"},
    {"filter": False}, {"normalize": "minmax"}, {"normalize": "joint"}, {"scales": (0.5, 1.0)}, {"scales": (0.75, 1.5)},
    {"layer": 1}, {"layer": -2}, {"exclude_repeats": True}, {"clip": False}, {"k": 5}, {"p": 0.2},
    {"weights": (1, 0, 0)},
]  # fmt: skip


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
@pytest.mark.parametrize("family", ["qwen2_vl", "llava_pad", "internvl"])
def test_every_setting_changes_the_maps_and_keeps_them_in_range(load, picture, family, switch):
    default = load(family).explain(picture, PROMPT, answer=ANSWER)
    changed = load(family).explain(picture, PROMPT, answer=ANSWER, **switch)
    assert not np.allclose(default.maps, changed.maps, atol=1e-5)
    assert changed.maps.min() >= 0
    assert changed.maps.max() <= 1 + 1e-6
    assert (
        changed.provenance["settings"].items()
        >= {k: v for k, v in switch.items() if k not in ("views", "weights")}.items()
    )


def test_an_earlier_layer_is_read_after_the_final_norm(load, picture):
    explainer = load("llava", "float64")
    adapter = explainer.adapter
    prepared = adapter.prepare(picture, as_messages(PROMPT)).with_answer(adapter.encode_answer(ANSWER))
    with torch.no_grad():
        out = adapter.model(**adapter.collate([prepared], 0), output_hidden_states=True)
        states = adapter.final_norm(out.hidden_states[1])[0, prepared.visual].numpy()
    explanation = explainer.explain(picture, PROMPT, answer=ANSWER, method="cam", layer=1)
    rows = adapter.head.weight.detach().numpy()[[t.id for t in explanation.text_tokens]]
    expected = [reference.minmax(m) for m in np.clip(rows @ states.T, 0, None)]
    np.testing.assert_allclose(explanation.maps.reshape(len(rows), -1), expected, atol=1e-6)


def test_settings_can_be_written_after_the_name():
    _, settings = resolve("ercr:context=tam,scales=0.5/1,filter=off")
    assert (settings.context, settings.scales, settings.filter) == ("tam", (0.5, 1.0), False)


@pytest.mark.parametrize(
    ("spec", "error", "says"),
    [
        ("erc", UnknownMethod, "Did you mean 'ercr'"),
        ("ercr:contex=tam", InputError, "Did you mean 'context'"),
        ("ercr:context=pcrr", InputError, "pcr, tam, mean, none"),
        ("ercr:scales=big", InputError, "numbers"),
        ("ercr:views=0", InputError, "1 to 64"),
        ("ercr:k", InputError, "name=value"),
        ("ercr:p=1.5", InputError, "below 1"),
        ("ercr:weights=1/2", InputError, "3 numbers"),
        ("ercr:eps=0", InputError, "eps above 0"),
        ("ercr:filter=maybe", InputError, "on or off"),
        ("ercr:p=off", InputError, "a number"),
        ("ercr:k=2.5", InputError, "whole number"),
        ("attention:layer=x", InputError, "whole number"),
        ("llava_cam:layer=1.5", InputError, "whole number"),
    ],
)
def test_wrong_methods_and_switches_say_what_is_right(spec, error, says):
    with pytest.raises(error, match=says.replace("'", ".")):
        resolve(spec)
