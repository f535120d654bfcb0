"""ERCR and TAM on traces of random numbers: every switch, any views, against the equations in plain loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ercr.errors import InputError
from ercr.methods import resolve
from ercr.methods.ercr import ErcrSettings
from ercr.methods.readout import activation_maps, normalise
from ercr.trace.data import View
from tests.methods import made

SEEDS = st.integers(0, 10_000)
SWITCHES = st.fixed_dictionaries(
    {},
    optional={
        "scales": st.sampled_from([(1.0,), (0.5, 1.0), (0.75,), (1.6, 1.0, 0.5), (1.6,), (0.5, 0.75, 1.0, 1.6)]),
        "aggregate": st.sampled_from(["mean", "max"]),
        "filter": st.booleans(),
        "normalize": st.sampled_from(["none", "minmax", "joint"]),
        "exclude_repeats": st.booleans(),
        "clip": st.booleans(),
        "k": st.integers(1, 7),
        "p": st.sampled_from([0.0, 0.5, 0.9]),
        "eps": st.sampled_from([1e-8, 0.3]),
    },
)


def explain(method, trace, given):
    """Evidence and result of a method over all rows of a trace."""
    method, chosen = resolve(method, **given)
    rows = slice(0, len(trace.rows))
    read = method.evidence(trace, rows, chosen)
    return read, method.refine(trace, read.maps, rows, chosen)


@pytest.mark.parametrize("context", ["pcr", "tam", "mean", "none"])
@settings(deadline=None, max_examples=12)
@given(seed=SEEDS, switches=SWITCHES, weighted=st.booleans())
def test_ercr_is_its_equations_whatever_the_views_show(context, seed, switches, weighted):
    switches = {**switches, "context": context}
    trace, chosen = made.trace(seed), ErcrSettings(**switches)
    if weighted:
        switches = {**switches, "weights": tuple(np.random.default_rng(seed).random(len(chosen.scales)) + 0.1)}
        chosen = ErcrSettings(**switches)
    read, found = explain("ercr", trace, switches)
    maps, alone = made.evidence(trace, chosen)
    np.testing.assert_allclose(read.maps, maps, atol=1e-9)
    several = 1.0 in chosen.scales and len(chosen.scales) > 1
    assert list(read.stages) == (["raw"] if several else [])
    if several:  # what the page shows as the first step: the anchor alone
        np.testing.assert_allclose(read.stages["raw"], alone[chosen.scales.index(1.0)], atol=1e-9)
    expected, alphas, betas, overlap = made.ercr(trace, chosen)
    np.testing.assert_allclose(found.alpha, alphas, atol=1e-6)
    np.testing.assert_allclose(found.beta, betas, atol=1e-5)
    np.testing.assert_allclose(found.maps, expected, atol=1e-5)
    if chosen.context == "pcr":
        np.testing.assert_allclose(found.relevance, overlap, atol=1e-6)
    else:
        assert found.relevance is None


@settings(deadline=None, max_examples=20)
@given(SEEDS, st.booleans())
def test_tam_is_its_equations_on_padded_and_tiled_pictures(seed, filtered):
    trace = made.trace(seed)
    expected, raw = made.tam(trace, filtered)
    read, found = explain("tam", trace, {"filter": filtered})
    np.testing.assert_allclose(read.maps, raw, atol=1e-9)
    np.testing.assert_allclose(found.maps, expected, atol=1e-6)
    assert found.beta[0] == 0


@pytest.mark.parametrize("method", ["ercr", "ercr:normalize=joint,exclude_repeats=on", "ercr:context=tam", "tam"])
def test_words_explained_one_by_one_are_those_explained_together(method):
    trace = made.trace(7)
    method, chosen = resolve(method, **({"scales": (0.5, 1.0)} if method.startswith("ercr") else {}))
    read = method.evidence(trace, slice(0, len(trace.rows)), chosen).maps
    whole = method.refine(trace, read, slice(0, len(read)), chosen)
    for start, stop in ((0, 1), (1, 4), (4, len(read))):
        rows = slice(start, stop)
        np.testing.assert_allclose(method.evidence(trace, rows, chosen).maps, read[rows], atol=1e-12)
        part = method.refine(trace, read[:stop], rows, chosen)
        np.testing.assert_allclose(part.maps, whole.maps[rows], atol=1e-6)
        np.testing.assert_allclose(part.alpha, whole.alpha[rows, :stop], atol=1e-7)
        np.testing.assert_allclose(part.beta, whole.beta[rows], atol=1e-6)


def test_half_precision_states_are_read_in_single_precision():
    trace = made.trace(3)
    halved = dataclasses.replace(
        trace, views=tuple(View(v.scale, v.geometry, v.states.to(torch.bfloat16)) for v in trace.views)
    )
    maps = activation_maps(halved, halved.anchor, slice(2, 5))
    expected = activation_maps(trace, View(1.0, trace.geometry, halved.anchor.states.double()), slice(2, 5))
    assert maps.dtype == torch.float32
    np.testing.assert_allclose(maps, expected, atol=1e-5)
    unclipped = activation_maps(trace, trace.anchor, slice(0, 9), clip=False)
    assert unclipped.min() < 0
    np.testing.assert_allclose(
        activation_maps(dataclasses.replace(trace), trace.views[1], slice(0, 9)).amin((-2, -1)).clamp(max=0),
        np.zeros(9),
    )


def test_a_map_that_only_rounding_moves_is_no_evidence():
    maps = torch.tensor([[[1.0, 1 + 0.9e-6]], [[1.0, 1 + 1.1e-6]], [[-2.0, -2 + 1e-6]]], dtype=torch.float64)
    found = normalise(maps, None)
    assert found[:, 0].tolist() == [[0, 0], [0, 1], [0, 0]]
    both = normalise(torch.tensor([[[2.0, 3.0]]]), None, torch.tensor([[1.0, torch.nan, 5.0]]))
    assert both.flatten().tolist() == [0.25, 0.5]
    assert normalise(torch.tensor([[[2.0, 3.0]]]), None, torch.zeros(1, 0)).flatten().tolist() == [0, 1]


RIGHT = [
    {"views": 1}, {"views": 64}, {"scales": (0.05, 4)}, {"k": 1}, {"k": 200}, {"p": 0.0}, {"p": 0.999},
    {"weights": (0, 0, 1)}, {"eps": 1e-12}, {"scales": 1.0},
]  # fmt: skip
WRONG = [
    {"views": 0}, {"views": 65}, {"scales": (0.049,)}, {"scales": (1.0, 4.01)}, {"k": 0}, {"k": 201}, {"p": -0.1},
    {"p": 1.0}, {"weights": (0, 0, 0)}, {"weights": (-0.1, 1, 1)}, {"weights": (1, 1)}, {"eps": 0.0},
    {"eps": -1e-9}, {"scales": ()}, {"scales": (None,)}, {"scales": (1.0, float("nan"))}, {"views": "crop"},
    {"aggregate": "min"}, {"normalize": "max"},
]  # fmt: skip


@pytest.mark.parametrize("given", RIGHT, ids=str)
def test_settings_hold_up_to_their_bounds(given):
    assert ErcrSettings(**given).scales


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_settings_beyond_their_bounds_are_refused(given):
    with pytest.raises(InputError):
        ErcrSettings(**given)


def test_a_number_of_views_spaces_their_scales_evenly():
    assert ErcrSettings(views=1).scales == (1.0,)
    for count in (2, 3, 5):
        np.testing.assert_allclose(ErcrSettings(views=count).scales, np.linspace(0.5, 1, count))
    assert ErcrSettings(views="interpolate").view_kind == "interpolate"
    assert ErcrSettings(views=3).view_kind == ErcrSettings().view_kind == "pad"


def test_methods_ask_for_the_views_and_lists_that_they_read():
    method, chosen = resolve("ercr:scales=0.5/1,k=7,layer=2,views=interpolate")
    wanted = method.needs(chosen)
    assert (wanted.scales, wanted.kind, wanted.layer, wanted.top) == ((0.5, 1.0), "interpolate", 2, 7)
    defaults = ErcrSettings()
    assert (defaults.scales, defaults.k, defaults.p, defaults.eps) == ((0.5, 0.75, 1.0), 50, 0.8, 1e-8)  # section IV
    assert (defaults.layer, defaults.filter, defaults.clip, defaults.exclude_repeats) == (-1, True, True, False)


def test_tam_filters_the_last_layer_and_streams_unless_it_is_the_public_code():
    tam, defaults = resolve("tam")
    assert (defaults.filter, tam.needs(defaults).layer, tam.streams(defaults)) == (True, -1, True)
    assert not tam.streams(resolve("tam:compat=on")[1])
