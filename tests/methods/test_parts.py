"""The pieces of the methods against reference packages, plain NumPy, and their own laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rbo import RankingSimilarity

from ercr.methods import ranking, smoothing
from ercr.methods.ranking import rank_biased_overlap
from ercr.methods.readout import normalise
from ercr.methods.residual import residualise, weighted_context
from ercr.methods.smoothing import rank_gaussian
from ercr.trace.ranked import stable_top
from tests.methods import reference

seeds = st.integers(0, 10_000)


@given(seeds, st.integers(1, 50), st.sampled_from([0.0, 0.5, 0.8, 0.99]))
@settings(deadline=None)
def test_rank_overlap_equals_the_definition(seed, depth, p):
    rng = np.random.default_rng(seed)
    lists = np.array([rng.permutation(70)[:depth] for _ in range(5)])
    ours = rank_biased_overlap(torch.tensor(lists[3:]), torch.tensor(lists), p, 70).numpy()
    expected = [[reference.rbo(list(a), list(b), p) for b in lists] for a in lists[3:]]
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_rank_overlap_equals_the_rbo_package():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.permutation(80)[:50].tolist(), rng.permutation(80)[:50].tolist()
        theirs = RankingSimilarity(a, b).rbo(p=0.8)
        ours = float(rank_biased_overlap(torch.tensor([a]), torch.tensor([b]), 0.8, 80))
        # the package extrapolates beyond the depth by p^depth of the last agreement; ours is the truncated sum
        tail = 0.8**50 * len(set(a) & set(b)) / 50
        assert ours == pytest.approx(theirs, abs=tail + 1e-6)


def test_rank_overlap_in_chunks_is_the_same(monkeypatch):
    lists = torch.stack([torch.randperm(300)[:50] for _ in range(40)])
    whole = rank_biased_overlap(lists, lists, 0.8, 300)
    monkeypatch.setattr(ranking, "_CHUNK_ENTRIES", 300 * 7)
    assert torch.equal(whole, rank_biased_overlap(lists, lists, 0.8, 300))


@pytest.mark.parametrize(("vocabulary", "others", "most"), [(300, 4, 7), (300, 10, 4), (60, 40, 1), (3000, 4, 1)])
def test_tables_of_the_rank_overlap_stay_within_their_bound(monkeypatch, vocabulary, others, most):
    """As many rows at once as fit, by the larger of the table and the look-ups; at least one."""
    lists = torch.stack([torch.randperm(vocabulary)[:50] for _ in range(40)])
    monkeypatch.setattr(ranking, "_CHUNK_ENTRIES", 300 * 7)
    made, minimum = [], torch.minimum
    monkeypatch.setattr(torch, "minimum", lambda found, tails: made.append(len(found)) or minimum(found, tails))
    rank_biased_overlap(lists, lists[:others], 0.8, vocabulary)
    assert max(made) == most
    assert len(made) == -(-40 // most)


def test_no_targets_give_no_rows_of_overlap():
    lists = torch.stack([torch.randperm(9)[:5] for _ in range(4)])
    assert rank_biased_overlap(lists[:0], lists, 0.8, 9).shape == (0, 4)


def test_windows_of_the_rank_filter_stay_within_their_bound(monkeypatch):
    made, std_mean = [], torch.std_mean
    monkeypatch.setattr(
        torch, "std_mean", lambda found, *a, **k: made.append(found.numel()) or std_mean(found, *a, **k)
    )
    for entries, expected in ((9 * 20 * 2, [2, 2, 2, 1]), (9 * 20 * 3 - 1, [2, 2, 2, 1]), (9 * 20 * 7, [7]),
                              (9 * 20 * 7 - 1, [6, 1]), (9, [1] * 7)):  # fmt: skip
        monkeypatch.setattr(smoothing, "_ENTRIES", entries)
        made.clear()
        rank_gaussian(torch.rand(7, 4, 5))
        assert [entries // (9 * 20) for entries in made] == expected


def test_top_lists_order_ties_by_lower_id_and_negatives_right():
    scores = torch.tensor([[1.0, -2.0, 1.0, 0.0, -0.0, 3.0, -2.0, -1e-30]])
    assert stable_top(scores, 8).tolist() == [[5, 0, 2, 3, 4, 7, 1, 6]]
    noisy = torch.randn(50, 1000).round(decimals=1)
    expected = [reference.ranked(row, 20) for row in noisy.tolist()]
    assert stable_top(noisy, 20).tolist() == expected


@given(seeds, st.integers(1, 7), st.integers(1, 7), st.booleans())
@settings(deadline=None)
def test_rank_filter_equals_plain_numpy(seed, h, w, sparse):
    rng = np.random.default_rng(seed)
    image = rng.random((h, w)) * (rng.random((h, w)) > 0.5 if sparse else 1)
    ours = rank_gaussian(torch.from_numpy(image)[None])[0].numpy()
    np.testing.assert_allclose(ours, reference.rank_filter(image), atol=1e-9)


def test_rank_filter_in_chunks_is_the_same(monkeypatch):
    maps = torch.rand(7, 4, 5)
    whole = rank_gaussian(maps)
    monkeypatch.setattr(smoothing, "_ENTRIES", 9 * 20 * 2)
    assert torch.equal(whole, rank_gaussian(maps))


def test_windows_without_a_positive_mean_hold_no_evidence():
    maps = torch.rand(2, 4, 5, dtype=torch.float64)
    assert (rank_gaussian(-maps) == 0).all()
    balanced = torch.tensor([[[-1.0, 1.0], [1.0, -1.0]]])  # reflected: windows of mean -1/9 and 1/9
    assert (rank_gaussian(balanced)[balanced < 0] == 0).all()
    assert (rank_gaussian(balanced - balanced) == 0).all()
    assert rank_gaussian(torch.tensor([[[-8.0, 1, 1], [1, 1, 1], [1, 1, 1]]]))[0, 1, 1] == 0  # of mean 0


def test_rank_filter_of_constant_maps_is_the_constant():
    maps = torch.stack([torch.zeros(4, 5), torch.full((4, 5), 0.3)])
    assert torch.allclose(rank_gaussian(maps), maps)


@given(seeds)
@settings(deadline=None)
def test_residual_is_orthogonal_to_the_context_and_weights_sum_to_one(seed):
    generator = torch.Generator().manual_seed(seed)
    maps = torch.rand(6, 4, 5, generator=generator, dtype=torch.float64)
    weights = torch.rand(6, 6, generator=generator, dtype=torch.float64).tril(-1)
    alpha, context = weighted_context(weights, maps, 1e-12)
    residual, beta = residualise(maps, context, 1e-12)
    assert torch.allclose(alpha[1:].sum(1), torch.ones(5, dtype=torch.float64), atol=1e-6)
    assert torch.allclose((residual * context).sum((1, 2)), torch.zeros(6, dtype=torch.float64), atol=1e-9)
    assert torch.equal(residual[0], maps[0])
    assert beta[0] == 0


def test_what_steadies_a_quotient_is_added_to_what_it_is_divided_by():
    maps, context = torch.rand(3, 2, 4, dtype=torch.float64), torch.rand(3, 2, 4, dtype=torch.float64)
    context[0] = 0
    weights = torch.rand(3, 3, dtype=torch.float64).tril(-1)
    for eps in (1e-8, 0.5):
        residual, beta = residualise(maps, context, eps)
        alpha, blend = weighted_context(weights, maps, eps)
        for t in range(3):
            expected = (maps[t] * context[t]).sum() / ((context[t] ** 2).sum() + eps)
            assert beta[t] == pytest.approx(float(expected))
            np.testing.assert_allclose(residual[t], maps[t] - expected * context[t])
            np.testing.assert_allclose(alpha[t], weights[t] / (weights[t].sum() + eps))
            np.testing.assert_allclose(blend[t], sum(alpha[t, j] * maps[j] for j in range(3)))
    assert beta[0] == 0


@given(seeds)
@settings(deadline=None)
def test_normalised_maps_span_zero_to_one_over_valid_cells_only(seed):
    rng = np.random.default_rng(seed)
    maps, valid = torch.from_numpy(rng.normal(size=(3, 4, 4))), torch.from_numpy(rng.random((4, 4)) > 0.3)
    maps[2] = 7.0
    valid[0, :2] = True
    out = normalise(maps, valid)
    inside = out[:2][:, valid]
    assert torch.allclose(inside.amin(1), torch.zeros(2, dtype=torch.float64))
    assert torch.allclose(inside.amax(1), torch.ones(2, dtype=torch.float64))
    assert (out[:, ~valid] == 0).all()
    assert (out[2] == 0).all()
