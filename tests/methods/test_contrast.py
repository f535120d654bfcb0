"""Contrast on traces of random numbers against its equation in plain loops, and what it promises users."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ercr.errors import InputError
from ercr.explaining.together import mapped, run
from ercr.methods import resolve
from ercr.methods.contrast import ContrastSettings
from ercr.methods.ercr import ErcrSettings
from tests.methods import made, reference

SWITCHES = st.fixed_dictionaries(
    {},
    optional={
        "scales": st.sampled_from([(1.0,), (0.5, 1.0), (1.6, 1.0, 0.5), (1.6,)]),
        "common": st.sampled_from([0.0, 0.15, 1.0]),
        "share": st.sampled_from([0.0, 0.4, 1.0]),
        "local": st.sampled_from([0.0, 0.5, 1.0]),
        "rivals": st.integers(2, 7),
        "among": st.sampled_from(["uniform", "probability", "rank"]),
        "gate": st.sampled_from(["root", "probability", "none"]),
        "forms": st.booleans(),
        "clip": st.booleans(),
    },
)


def same_word(one, other):
    one, other = sorted((one.lower(), other.lower()), key=len)
    return other.startswith(one) and (len(one) >= 3 or len(one) == len(other))


def new_zero(chosen):
    """Logits [N, S] of a view counted from where the rivals of each word stand, word by word and cell by cell."""

    def read(trace, view):
        text, states = trace.text, view.states.numpy()
        valid = made.on_picture(view.geometry)
        out = made.logits(trace, view)
        every = trace.unembed(torch.arange(made.VOCABULARY)).numpy()
        out -= chosen.common * (states @ every.T).mean(1)[:, None]
        for t, target in enumerate(text.targets.tolist()):
            level, total = np.zeros(len(states)), 0.0
            for rank, other in enumerate(text.top_ids[t, : chosen.rivals].tolist()):
                forms = not chosen.forms and same_word(made.WORDS[target], made.WORDS[other])
                if other == target or forms:
                    continue
                depth = min(chosen.rivals, text.top_ids.shape[1])
                by_rank = sum((1 - chosen.p) * chosen.p ** (d - 1) / d for d in range(rank + 1, depth + 1))
                kinds = {"uniform": 1.0, "probability": float(text.top_probabilities[t, rank]), "rank": by_rank}
                row = trace.unembed(torch.tensor([other])).numpy()[0]
                level += kinds[chosen.among] * states @ row
                total += kinds[chosen.among]
            level = level / total if total else level
            mean = made.mosaic(level, view.geometry)[valid].mean()
            p = float(text.log_probabilities[t].exp())
            share = chosen.share * {"root": p**0.5, "probability": p, "none": 1.0}[chosen.gate]
            out[:, t] -= share * (chosen.local * level + (1 - chosen.local) * mean)
        return out

    return read


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), switches=SWITCHES, smoothing=st.sampled_from([0.0, 0.5, 1.0]))
def test_contrast_is_its_equation_whatever_the_views_show(seed, switches, smoothing):
    trace, chosen = made.trace(seed), ContrastSettings(**switches, smoothing=smoothing)
    assert chosen.weights == chosen.scales
    read, found = run(*resolve("contrast", **switches, smoothing=smoothing), trace)
    maps, _ = made.evidence(trace, chosen, new_zero(chosen))
    np.testing.assert_allclose(read.maps, maps, atol=1e-7)
    plain, alphas, betas, _ = made.ercr(trace, dataclasses.replace(chosen, filter=False), new_zero(chosen))
    smooth = np.array([reference.rank_filter(m) for m in plain]) * made.on_picture(trace.geometry)
    np.testing.assert_allclose(found.maps, smoothing * smooth + (1 - smoothing) * plain, atol=1e-6)
    np.testing.assert_allclose(found.alpha, alphas, atol=1e-7)
    np.testing.assert_allclose(found.beta, betas, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_cam_and_tam_get_the_new_zero_and_nothing_else(seed):
    trace, chosen = made.trace(seed), ContrastSettings()
    _, found = run(*resolve("contrast:base=tam"), trace)
    expected, raw = made.tam(trace, logits=new_zero(chosen))
    np.testing.assert_allclose(found.maps, expected, atol=1e-6)
    _, found = run(*resolve("contrast:base=cam"), trace)
    valid = made.on_picture(trace.geometry)
    np.testing.assert_allclose(found.maps, [made.spread(m, valid) for m in raw], atol=1e-6)


@pytest.mark.parametrize("base", ["ercr", "tam", "cam"])
def test_without_a_share_the_base_method_is_left(base):
    trace = made.trace(5)
    same = {"weights": (1.0, 1.0, 1.0), "smoothing": 1.0} if base == "ercr" else {}
    _, found = run(*resolve("contrast", base=base, share=0, common=0, **same), trace)
    _, expected = run(*resolve(base), trace)
    assert torch.equal(found.maps, expected.maps)


def test_traces_of_one_geometry_run_together():
    chosen = resolve("contrast", rivals=5, forms=False)
    traces = [made.trace(7), made.trace(7)]
    shorter = {
        f.name: v[:6] for f in dataclasses.fields(traces[1].text) if (v := getattr(traces[1].text, f.name)) is not None
    }
    traces[1] = dataclasses.replace(traces[1], text=type(traces[1].text)(**shorter))
    for (_, together), trace in zip(mapped(*chosen, traces), traces, strict=True):
        torch.testing.assert_close(together.maps, run(*chosen, trace)[1].maps)


def test_every_word_of_the_vocabulary_is_spelt_without_case_and_space(load):
    adapter = load("qwen2_vl").adapter
    table = adapter.letters
    assert len(table) == adapter.vocabulary
    for text in ("dog", " dog", " Dog"):
        (first, *_) = adapter.tokenizer(text, add_special_tokens=False)["input_ids"]
        token = adapter.tokenizer.convert_ids_to_tokens(first).lstrip("Ġ▁").lower()
        assert "".join(chr(letter) for letter in table[first] if letter) == token[:16]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"gate": "p"}, "gate must be"),
        ({"base": "attention"}, "base must be"),
        ({"among": "best"}, "among must be"),
        ({"rivals": 1}, "rivals must be 2 to 200"),
        ({"smoothing": 1.5}, "between 0 and 1"),
        ({"common": 2}, "between 0 and 1"),
        ({"share": -1}, "share between 0 and 2"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        resolve("contrast", **wrong)


def test_it_needs_what_its_base_needs():
    def needs(base):
        method, chosen = resolve("contrast", base=base)
        return method.needs(chosen)

    assert needs("ercr").scales == ErcrSettings().scales
    assert needs("tam").scales == (1.0,)
