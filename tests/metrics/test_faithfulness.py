"""Deletion and insertion: exactly the top pixels, areas as scikit-learn has them, scores of fixed answers."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from ercr.errors import InputError
from ercr.metrics.faithfulness import BUDGETS, CURVE, auc, baseline_image, changes, curves, perturbed, top_masks

from .made import explanation, pool

IMAGE = np.random.default_rng(0).integers(0, 256, (14, 15, 3), dtype=np.uint8)


@given(st.integers(1, 23), st.integers(1, 23), st.integers(0, 3))
def test_the_top_pixels_are_floor_of_the_share_and_ties_go_by_index(height, width, levels):
    heat = np.random.default_rng(height).integers(0, levels + 1, (height, width)).astype(np.float32)
    masks = top_masks(heat, CURVE)
    order = sorted(range(height * width), key=lambda i: (-heat.ravel()[i], i))
    for percent, mask in zip(range(0, 101, 5), masks, strict=True):
        wanted = order[: percent * height * width // 100]
        assert sorted(wanted) == np.flatnonzero(mask).tolist()


def test_many_maps_are_perturbed_at_once_as_one_by_one():
    heats = np.random.default_rng(1).random((3, 14, 15), np.float32)
    deleted, inserted, blank = perturbed(IMAGE, heats)
    assert deleted.shape == inserted.shape == (3, 3, 14, 15, 3)
    assert deleted.dtype == np.uint8
    for i, heat in enumerate(heats):
        one, other, same = perturbed(IMAGE, heat, baseline=blank)
        np.testing.assert_array_equal(one, deleted[i])
        np.testing.assert_array_equal(other, inserted[i])
        np.testing.assert_array_equal(same, blank)
        for mask, gone, only in zip(top_masks(heat), one, other, strict=True):
            for y, x in np.ndindex(14, 15):
                pair = (blank, IMAGE) if mask[y, x] else (IMAGE, blank)
                assert (gone[y, x] == pair[0][y, x]).all()
                assert (only[y, x] == pair[1][y, x]).all()
    nothing, everything = perturbed(IMAGE, heats[0], (0.0, 1.0))[:2]
    np.testing.assert_array_equal(nothing, [IMAGE, blank])
    np.testing.assert_array_equal(everything, [blank, IMAGE])


def test_baselines_are_the_mean_colour_or_a_blur():
    assert (baseline_image(IMAGE) == np.round(IMAGE.reshape(-1, 3).mean(0))).all()
    blur = baseline_image(IMAGE, "blur")
    np.testing.assert_allclose(blur, cv2.GaussianBlur(IMAGE, (0, 0), 1.5, borderType=cv2.BORDER_REPLICATE), atol=1)
    assert blur.std() < IMAGE.std() / 2
    with pytest.raises(InputError, match=r"mean or blur, not 'blurr'. Did you mean 'blur'"):
        baseline_image(IMAGE, "blurr")


def test_areas_agree_with_scikit_learn():
    curves = np.random.default_rng(2).normal(size=(5, 21))
    np.testing.assert_allclose(auc(curves), [metrics.auc(CURVE, curve) for curve in curves])
    np.testing.assert_allclose(auc([1.0, 2.0, 4.0], BUDGETS), metrics.auc(BUDGETS, [1, 2, 4]) / 0.2)
    assert auc(np.full(21, 3.0)) == pytest.approx(3)


def row(sample, whole, blank, deleted, inserted):
    scores = {"score_whole": whole, "score_blank": blank, "deleted": list(deleted), "inserted": list(inserted)}
    return {"sample": str(sample), "kind": "noun", **scores}


def test_curves_score_every_perturbed_picture_once_and_the_ends_once_for_all_maps():
    made = [explanation(["a"], np.random.default_rng(i).random((1, 4, 5)), IMAGE.shape[:2]) for i in range(2)]
    maps = [(one.geometry, one.maps[-1]) for one in made]
    blank, seen = baseline_image(IMAGE, "blur"), []

    def score(pictures):
        seen.extend(pictures)
        return np.array([[picture.sum(dtype=float), picture[3, 4, 1]] for picture in seen])  # two numbers per picture

    found = curves(IMAGE, maps, score, (0.0, 0.2, 0.5, 1.0), "blur")
    assert len(seen) == 2 + 2 * 2 * 2
    for (geometry, map_), *both in zip(maps, found.deleted, found.inserted, strict=True):
        heat = geometry.to_pixels(map_)
        for pictures, scores in zip(perturbed(IMAGE, heat, (0, 0.2, 0.5, 1), blank)[:2], both, strict=True):
            np.testing.assert_array_equal(scores, [[p.sum(dtype=float), p[3, 4, 1]] for p in pictures])
    np.testing.assert_array_equal(found.whole, found.deleted[1][0])
    np.testing.assert_array_equal(found.blank, found.deleted[0][-1])
    only_ends = curves(IMAGE, maps, lambda pictures: np.array([p.mean() for p in pictures]), (1.0,))
    assert only_ends.deleted == [[only_ends.blank]] * 2
    assert only_ends.inserted == [[only_ends.whole]] * 2


def test_drops_and_gains_pool_over_tokens():
    assert changes(-1.0, -5.0, [-2.0], [-4.0]) == ([1.0], [1.0])
    rng = np.random.default_rng(3)
    tokens = [(rng.normal(), rng.normal(), rng.normal(size=21), rng.normal(size=21)) for _ in range(8)]
    pooled = pool([row(i // 3, *token) for i, token in enumerate(tokens)], CURVE)
    names = [*(str(percent) for percent in range(0, 101, 5)), "auc"]
    assert set(pooled.names) == {f"{a}_{b}" for a in ("deletion", "insertion") for b in names}
    assert pooled.value("deletion_20") == pytest.approx(np.mean([whole - gone[4] for whole, _, gone, _ in tokens]))
    areas = [metrics.auc(CURVE, only - blank) for _, blank, _, only in tokens]
    assert pooled.value("insertion_auc") == pytest.approx(np.mean(areas))
    found = pool([row(0, 0, 0, [1, 2, 3], [1, 2, 3])], BUDGETS).names
    assert set(found) == {f"{a}_{b}" for a in ("deletion", "insertion") for b in ("10", "20", "30")}


def test_fixed_answers_are_rescored_under_other_images(load, picture):
    explainer = load("llava")
    spoken = explainer.explain(picture, "x", answer="a dog", method="cam")
    rows = explainer.answer_log_probabilities([picture, picture.rotate(180)], "x", "a dog")
    np.testing.assert_allclose(np.exp(rows[0]), [t.probability for t in spoken.tokens], rtol=1e-4)
    assert not np.allclose(rows[0], rows[1])


def test_scores_are_named_by_percent_and_areas_need_a_whole_curve():
    for budgets, whole in (((0.0, 1.0), True), ((0.0, 0.9), False), ((0.15, 1.0), False), ((1.0,), False), ((), False)):
        values = [1.0] * len(budgets)
        found = pool([row(0, 0, 0, values, values)], budgets).names
        names = [*(round(100 * budget) for budget in budgets), *(["auc"] if whole else [])]
        assert set(found) == {f"{kind}_{name}" for kind in ("deletion", "insertion") for name in names}


def test_the_blur_grows_with_the_longer_side():
    tall = np.zeros((60, 20, 3), np.uint8)
    tall[30] = 255
    np.testing.assert_array_equal(
        baseline_image(tall, "blur"), cv2.GaussianBlur(tall, (0, 0), 6.0, borderType=cv2.BORDER_REPLICATE)
    )
