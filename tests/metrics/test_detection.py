"""Scores of telling present from absent things equal scikit-learn's; resamples equal repeated words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from ercr.metrics.detection import Told, reliability, roc


def words(values, there, images=None):
    return Told(np.asarray(values, float), np.asarray(there, bool), images or [str(i) for i in range(len(values))])


scored = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=2, max_size=60).filter(
    lambda pairs: len({there for _, there in pairs}) == 2
)


@given(scored)
def test_areas_are_scikit_learns_with_ties(pairs):
    values, there = zip(*pairs, strict=True)
    told = words(values, there)
    assert told.auroc() == pytest.approx(roc_auc_score(there, values))
    assert told.average_precision() == pytest.approx(average_precision_score(there, values))
    false, true, _ = roc_curve(there, values, drop_intermediate=False)
    np.testing.assert_allclose(roc(told), (false, true))


@given(scored, st.integers(0, 2**31))
def test_a_resample_is_the_words_as_often_as_their_picture_was_drawn(pairs, seed):
    values, there = (np.array(column) for column in zip(*pairs, strict=True))
    told = words(values, there)
    times = np.random.default_rng(seed).integers(0, 3, len(values))
    repeated = words(values.repeat(times), there.repeat(times))
    weights = times[None].astype(float)
    if not repeated.both:
        assert np.isnan(told.auroc(weights)[0])
        return
    assert told.auroc(weights)[0] == pytest.approx(repeated.auroc())
    assert told.average_precision(weights)[0] == pytest.approx(repeated.average_precision())
    assert told.accuracy(weights)[0] == pytest.approx(repeated.accuracy())


def test_the_calibration_error_is_the_mean_distance_over_groups_of_equal_size():
    rng = np.random.default_rng(0)
    values = rng.random(2000)
    fair = words(values, rng.random(2000) < values)
    groups = np.array_split(np.argsort(values, kind="stable"), 10)
    expected = np.mean([abs(fair.there[g].mean() - values[g].mean()) for g in groups])
    assert fair.calibration_error() == pytest.approx(expected)
    assert fair.calibration_error() < 0.03
    assert words(values, np.ones(2000)).calibration_error() == pytest.approx(0.5, abs=0.02)
    means, shares = zip(*((mean, share.value) for mean, share in reliability(fair)), strict=True)
    np.testing.assert_allclose(means, [values[g].mean() for g in groups])
    np.testing.assert_allclose(shares, [fair.there[g].mean() for g in groups])


def test_intervals_widen_when_words_share_pictures_and_hold_the_value():
    rng = np.random.default_rng(1)
    there = np.arange(400) % 2 == 0
    values = there + rng.normal(0, 1.2, 400)
    apart = words(values, there).interval(words(values, there).auroc)
    shared = words(values, there, [str(i // 20) for i in range(400)])
    values = values + np.repeat(rng.normal(0, 1, 20), 20) * np.where(there, 1, -1)
    together = Told(values, there, shared.images)
    wide = together.interval(together.auroc)
    assert apart.low < apart.value < apart.high
    assert wide.high - wide.low > 1.3 * (apart.high - apart.low)
    assert (apart.n, wide.n, wide.total) == (400, 20, 400)


def test_a_better_signal_is_ahead_by_a_paired_interval():
    rng = np.random.default_rng(2)
    there = rng.random(600) < 0.5
    strong, weak = there + rng.normal(0, 0.7, 600), there + rng.normal(0, 1.5, 600)
    one, other = words(strong, there), words(weak, there)
    found = one.over(other)
    assert found.difference == pytest.approx(roc_auc_score(there, strong) - roc_auc_score(there, weak))
    assert 0 < found.low < found.difference < found.high
    assert found.p < 0.01
    assert one.over(one).low == one.over(one).high == 0


def test_accuracy_by_the_other_halfs_threshold_is_not_flattered():
    rng = np.random.default_rng(3)
    noise = words(rng.random(2000), rng.random(2000) < 0.5)
    clear = words(np.arange(200) % 2 + rng.normal(0, 0.01, 200), np.arange(200) % 2)
    assert noise.held_out_accuracy() == pytest.approx(0.5, abs=0.04)
    assert clear.held_out_accuracy() == 1


def test_shares_count_only_those_among_which_they_are_asked():
    told = words([0, 0, 0, 0], [1, 1, 0, 0], ["a", "a", "b", "c"])
    found = told.share(np.array([1, 0, 1, 1], bool), told.there)
    assert (found.value, found.total, found.n) == (0.5, 2, 1)
    assert np.isnan(told.share(told.there, np.zeros(4, bool)).value)
