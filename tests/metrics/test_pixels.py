"""Maps as pictures: levels, Otsu's threshold, and overlaps down to single pixels and empty masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ercr.image.geometry import Geometry, Panel
from ercr.metrics.pixels import Overlap, levels, otsu, overlap, place, stretch

MASKS = st.lists(st.booleans(), min_size=6, max_size=6)


def test_levels_are_truncated_and_kept_within_a_byte():
    assert levels(np.array([-0.5, 0.0, 0.999 / 255, 0.5, 1.0, 1.3])).tolist() == [0, 0, 0, 127, 255, 255]


def test_otsus_threshold_parts_the_levels_with_the_least_spread_within_either_side():
    rng = np.random.default_rng(0)
    for _ in range(20):
        pixels = np.r_[rng.normal(70, 25, 300), rng.normal(170, 20, 100)].clip(0, 255).astype(np.uint8).reshape(20, 20)
        found = otsu(pixels)

        def within(at, pixels=pixels):
            return sum(part.size * part.var() for part in (pixels[pixels <= at], pixels[pixels > at]) if part.size)

        assert within(found) == pytest.approx(min(within(at) for at in range(256)), rel=1e-6)


@given(MASKS, MASKS, st.sampled_from([0.0, 0.25]))
def test_overlaps_are_counted_pixel_by_pixel(predicted, true, nothing):
    one, other = np.array(predicted), np.array(true)
    both, either = (one & other).sum(), (one | other).sum()
    found = overlap(one.reshape(2, 3), other.reshape(2, 3), nothing)
    assert found.iou == (both / either if either else 0)
    assert found.precision == (both / one.sum() if one.any() else nothing)
    assert found.recall == (both / other.sum() if other.any() else 0)
    assert overlap(np.zeros(3, bool), np.ones(3, bool)) == Overlap(0.0, 0.0, 0.0)


def test_maps_of_a_crop_are_laid_where_the_model_looked_and_whole_ones_are_stretched():
    rng = np.random.default_rng(1)
    map_ = rng.integers(0, 256, (4, 5), dtype=np.uint8)
    whole = Geometry((40, 50), (Panel((4, 5), (0, 0, 50, 40)),))
    np.testing.assert_array_equal(place(map_, whole, (80, 100)), stretch(map_, (80, 100)))
    for box in ((0, 0, 50, 30), (0, 10, 50, 40), (0, 0, 40, 40), (10, 0, 50, 40)):
        crop = Geometry((40, 50), (Panel((4, 5), box),))
        found = place(map_, crop, (40, 50))
        left, top, right, bottom = box
        assert found.dtype == np.uint8
        inner = found[top:bottom, left:right].astype(int)
        assert np.abs(inner - stretch(map_, (bottom - top, right - left)).astype(int)).max() <= 1
        found[top:bottom, left:right] = 0
        assert not found.any()
