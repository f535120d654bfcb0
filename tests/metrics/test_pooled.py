"""Figures from per-image sums: any partition and order gives the same; intervals and comparisons against scipy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ercr.errors import InputError
from ercr.metrics import pooled as pooled_module
from ercr.metrics.pooled import Pooled, compare, compare_all, harmonic


def made(images=40, seed=0, lift=0.0, one_each=False):
    """Word scores of images: [(image, {figure: values})]."""
    rng = np.random.default_rng(seed)
    return [
        (
            f"{i:03d}",
            {
                "obj_iou": np.clip(rng.random(1 if one_each else rng.integers(0, 4)) * 0.6 + lift, 0, 1),
                "func_iou": rng.random(1 if one_each else rng.integers(1, 5)),
            },
        )
        for i in range(images)
    ]


def pool(rows):
    pooled = Pooled()
    for image, values in rows:
        pooled.add(image, {name: (v.sum(), len(v)) for name, v in values.items()})
    return pooled


def numbers(pooled):
    return {name: (i.value, i.low, i.high, i.n) for name, i in pooled.summary(resamples=60).items()}


def test_values_are_means_over_all_words_and_their_harmonic_mean():
    rows = made()
    found = pool(rows).summary(resamples=400)
    every = {name: np.concatenate([values[name] for _, values in rows]) for name in ("obj_iou", "func_iou")}
    for name, values in every.items():
        assert found[name].value == pytest.approx(values.mean())
    assert found["f1_iou"].value == pytest.approx(stats.hmean([v.mean() for v in every.values()]))
    with_objects = sum(len(values["obj_iou"]) > 0 for _, values in rows)
    assert (found["obj_iou"].n, found["obj_iou"].total) == (with_objects, len(every["obj_iou"]))
    assert (found["func_iou"].n, found["func_iou"].total) == (40, len(every["func_iou"]))
    assert found["f1_iou"].n == with_objects < 40  # it rests on the weaker of its two
    assert found["f1_iou"].total == len(every["obj_iou"])
    for interval in found.values():
        assert interval.low < interval.value < interval.high
    assert pool(rows).value("f1_iou") == found["f1_iou"].value


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 3), min_size=40, max_size=40), st.permutations(range(4)), st.randoms())
def test_any_partition_and_order_gives_the_same_figures(parts, order, random):
    rows = made()
    halves = [  # the words of an image may be split between parts, too
        (part, (image, {name: v[half::2] for name, v in values.items()}))
        for part, (image, values) in zip(parts, rows, strict=True)
        for half in (0, 1)
    ]
    random.shuffle(halves)
    pools = [pool([row for part, row in halves if part == number]) for number in range(4)]
    merged = Pooled()
    for number in order:
        merged = merged.merge(pools[number])
    whole = numbers(pool(rows))
    assert numbers(merged).keys() == whole.keys()
    for name, found in numbers(merged).items():
        np.testing.assert_allclose(found, whole[name], atol=1e-9)


def test_intervals_agree_with_scipys_bootstrap():
    rows = made(120, one_each=True)
    values = np.concatenate([v["obj_iou"] for _, v in rows])
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, rng=1).confidence_interval
    ours = pool(rows).summary(resamples=4000)["obj_iou"]
    np.testing.assert_allclose((ours.low, ours.high), (theirs.low, theirs.high), atol=0.004)


def test_a_method_against_itself_differs_by_nothing():
    one = pool(made())
    images = {"obj_iou": one.summary(10)["obj_iou"].n, "func_iou": 40, "f1_iou": one.summary(10)["obj_iou"].n}
    for name in ("obj_iou", "func_iou", "f1_iou"):
        found = compare(one, one, name, resamples=100)
        assert (found.difference, found.low, found.high) == (0, 0, 0)
        assert (found.p, found.p_bootstrap, found.p_wilcoxon, found.n) == (1, 1, 1, images[name])


@pytest.mark.parametrize("images", [8, 60])  # all ways to swap, and some of them
def test_p_values_agree_with_scipys_tests_where_images_weigh_the_same(images):
    a, b = made(images, 1, 0.12, one_each=True), made(images, 2, one_each=True)
    found = compare(pool(a), pool(b), "obj_iou", resamples=4000)
    x, y = (np.concatenate([v["obj_iou"] for _, v in rows]) for rows in (a, b))
    theirs = stats.permutation_test(
        (x, y), lambda x, y, axis: (x - y).mean(axis), permutation_type="samples", vectorized=True, n_resamples=4000
    )
    assert found.difference == pytest.approx((x - y).mean())
    assert found.p == pytest.approx(theirs.pvalue, abs=1e-9 if images == 8 else 0.02)
    assert found.p_wilcoxon == pytest.approx(stats.wilcoxon(x, y).pvalue)
    assert found.p_bootstrap == pytest.approx(found.p, abs=0.08)
    assert found.low < found.difference < found.high
    back = compare(pool(b), pool(a), "obj_iou", resamples=4000)
    assert (back.difference, back.p) == (pytest.approx(-found.difference), pytest.approx(found.p))


def test_only_common_images_are_compared():
    rows = made()
    found = compare(pool(rows[:30]), pool(rows[10:]), "f1_iou", resamples=50)
    objects = [len(values["obj_iou"]) for _, values in rows[10:30]]
    assert (found.n, found.total, found.difference) == (sum(map(bool, objects)), sum(objects), 0)
    assert compare(pool(rows[:30]), pool(rows[10:]), "func_iou", resamples=50).n == 20
    with pytest.raises(InputError, match="no image in common"):
        compare(pool(rows[:3]), pool(rows[3:]), "f1_iou")
    with pytest.raises(InputError, match="Did you mean 'f1_iou'"):
        compare(pool(rows), pool(rows), "f1_iuo")


def test_a_figure_that_no_image_has_is_not_a_number():
    empty = Pooled()
    assert empty.summary() == {}
    empty.add("x", {"obj_iou": (0, 0), "func_iou": (0.5, 1)})
    found = empty.summary(resamples=10)
    assert found["func_iou"].value == 0.5
    assert found["obj_iou"].n == 0
    assert np.isnan([found["obj_iou"].value, found["obj_iou"].low, found["f1_iou"].value]).all()
    assert np.isnan(compare(empty, empty, "obj_iou", resamples=10).p)


def test_no_p_value_is_below_what_so_many_resamples_can_tell():
    """Where every image speaks for one method, only the ways that were not drawn could say otherwise."""
    better, worse = ([(f"{i}", {"obj_iou": np.array([score])}) for i in range(60)] for score in (0.9, 0.1))
    found = compare(pool(better), pool(worse), "obj_iou", resamples=300)
    assert found.p == pytest.approx(1 / 301, rel=1e-12)
    assert found.p_bootstrap == pytest.approx(2 / 301, rel=1e-12)
    assert compare(pool(better[:8]), pool(worse[:8]), "obj_iou", resamples=256).p == 2 / 256  # all ways, counted
    assert compare(pool(better[:8]), pool(worse[:8]), "obj_iou", resamples=255).p == pytest.approx(1 / 256, abs=3 / 256)


def test_the_harmonic_mean_rests_on_the_images_and_words_of_the_part_that_has_fewest():
    pooled = Pooled()
    for image, objects, functions in (("a", 1, 0), ("b", 0, 2), ("c", 3, 1), ("d", 0, 0), ("e", 0, 9)):
        pooled.add(image, {"func_iou": (0.25 * functions, functions), "obj_iou": (0.5 * objects, objects)})
    found = pooled.summary(resamples=20)
    assert [found[name].n for name in ("obj_iou", "func_iou", "f1_iou")] == [2, 3, 2]
    assert [found[name].total for name in ("obj_iou", "func_iou", "f1_iou")] == [4, 12, 4]
    assert found["f1_iou"].value == pytest.approx(2 * 0.5 * 0.25 / 0.75)


def test_the_harmonic_mean_of_nothing_is_nothing():
    assert harmonic(0.0, 0.0) == 0
    np.testing.assert_allclose(harmonic(np.array([0.0, 1.0, 0.5]), np.array([1.0, 1.0, 0.25])), [0, 1, 1 / 3])


def test_swaps_that_leave_a_figure_undefined_count_as_large():
    a, b = Pooled(), Pooled()
    a.add("x", {"obj_iou": (0.5, 1)})
    b.add("x", {"obj_iou": (0.0, 0)})
    a.add("y", {"obj_iou": (0.2, 1)})
    b.add("y", {"obj_iou": (0.4, 1)})
    # of the four ways the first two are defined: b has no word in x
    found = compare(a, b, "obj_iou", resamples=10)
    assert found.difference == pytest.approx(0.35 - 0.4)
    expected = [0.35 - 0.4, 0.4 - 0.35, 0.45 - 0.2, 0.2 - 0.45]
    assert found.p == np.mean([abs(d) >= 0.05 - 1e-9 for d in expected])
    assert found.p_wilcoxon == 1  # the only image with both
    assert (found.n, found.total) == (2, 1)  # images of either, words of the one that has fewer


def test_intervals_and_tests_do_not_depend_on_how_many_resamples_are_held_together(monkeypatch):
    a, b = pool(made(12, 1)), pool(made(12, 2))
    whole = a.summary(resamples=501)["f1_iou"], compare(a, b, "f1_iou", resamples=501)
    drawn = []
    rng = np.random.default_rng

    class Counted:
        def __init__(self, seed):
            self.rng = rng(seed)

        def multinomial(self, n, shares, count):
            drawn.append(count)
            return self.rng.multinomial(n, shares, count)

        def integers(self, low, high, size):
            drawn.append(size[0])
            return self.rng.integers(low, high, size)

    monkeypatch.setattr(np.random, "default_rng", Counted)
    assert (a.summary(resamples=501)["f1_iou"], compare(a, b, "f1_iou", resamples=501)) == whole
    assert drawn == [250, 250, 1] * 3  # the interval, the paired interval, and the swaps
    monkeypatch.setattr(pooled_module, "_AT_ONCE", 40)
    again = a.summary(resamples=501)["f1_iou"], compare(a, b, "f1_iou", resamples=501)
    for first, second in zip(whole, again, strict=True):
        np.testing.assert_allclose(
            [getattr(first, f.name) for f in dataclasses.fields(first)],
            [getattr(second, f.name) for f in dataclasses.fields(second)],
        )


def test_resamples_and_seed_are_those_asked_for():
    a, b = pool(made(12, 1)), pool(made(12, 2))
    assert a.summary() == a.summary(2000, 0) != a.summary(2000, 1)
    assert a.summary() != a.summary(1999, 0)
    assert compare(a, b, "f1_iou") == compare(a, b, "f1_iou", 2000, 0) != compare(a, b, "f1_iou", 2000, 1)
    assert compare_all(a, b, ["f1_iou"]) == {"f1_iou": compare(a, b, "f1_iou")}
    assert compare(a, b, "f1_iou") != compare(a, b, "f1_iou", 1999)


def test_the_bootstrap_counts_both_sides_of_nothing_in_resamples_of_its_own():
    """Two images that pull either way: of n draws of two, a share of 1/4 has the one twice, and so on."""
    a, b = Pooled(), Pooled()
    for image, one, other in (("x", 0.9, 0.1), ("y", 0.2, 0.6)):
        a.add(image, {"obj_iou": (one, 1)})
        b.add(image, {"obj_iou": (other, 1)})
    found = compare(a, b, "obj_iou", resamples=400)
    assert found.difference == pytest.approx(0.2)
    # only (y, y) lies below: a quarter of the draws
    count = found.p_bootstrap * 401 / 2 - 1
    assert count == pytest.approx(round(count), abs=1e-9)
    assert 70 <= round(count) <= 130
    assert found.p == 1.0  # of four ways, two give 0.2 and two give 0.6


def test_an_image_without_a_figure_adds_nothing_to_it():
    pooled = Pooled()
    pooled.add("a", {"obj_iou": (0.5, 1), "func_iou": (0.2, 1)})
    pooled.add("b", {"func_iou": (0.4, 1)})
    assert pooled.value("obj_iou") == 0.5
    assert pooled.value("func_iou") == pytest.approx(0.3)
    assert harmonic(0.25, 0.75) == 0.375


def test_intervals_hold_ninety_five_per_cent_and_the_bootstrap_has_two_sides():
    assert pooled_module._percentiles(np.arange(1001.0)) == (25, 975)
    a, b = pool(made(12, 1)), pool(made(12, 2))
    assert compare(a, b, "f1_iou").p_bootstrap == compare(b, a, "f1_iou").p_bootstrap
