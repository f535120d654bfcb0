"""Where a word's evidence is strongest: its third of the picture, and the box around the peak."""

from __future__ import annotations

import numpy as np
import pytest

from ercr.image.geometry import Geometry, Panel
from ercr.words.spots import spot

GRID, SIZE = (9, 12), (90, 120)
WHOLE = Geometry(SIZE, (Panel(GRID, (0.0, 0.0, 120.0, 90.0)),))


def blob(row, column, spread=0.6):
    y, x = np.mgrid[0 : GRID[0], 0 : GRID[1]]
    return np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * spread**2)).astype(np.float32)


@pytest.mark.parametrize(
    ("row", "column", "name"),
    [(1, 1, "top left"), (1, 6, "top"), (4, 10, "right"), (4, 6, "centre"), (8, 0, "bottom left"), (7, 6, "bottom")],
)
def test_a_peak_lies_in_its_third(row, column, name):
    found = spot(blob(row, column), WHOLE)
    assert found.name == name
    left, top, right, bottom = found.box
    assert left <= (column + 0.5) * 10 <= right
    assert top <= (row + 0.5) * 10 <= bottom
    assert right - left < 40


def test_the_box_is_that_of_the_peak_and_not_of_another_place():
    two = np.maximum(blob(1, 1), 0.9 * blob(7, 10))
    assert spot(two, WHOLE).box == pytest.approx(spot(blob(1, 1), WHOLE).box, abs=2)
    joined = np.zeros(GRID, np.float32)
    joined[4, 2:10] = 1
    left, _, right, _ = spot(joined, WHOLE).box
    assert (left, right) == pytest.approx((20, 100), abs=6)


def test_an_empty_map_has_no_place_and_cropped_pictures_keep_their_pixels():
    assert spot(np.zeros(GRID, np.float32), WHOLE) is None
    crop = Geometry((90, 400), (Panel(GRID, (155.0, 0.0, 245.0, 90.0)),))
    left, _, right, _ = spot(blob(4, 6), crop).box
    assert 155 <= left < right <= 245
    assert str(spot(blob(4, 6), crop, 1, 2.5)) == "centre, at 2.5 s, picture 2"
