"""Geometry: bilinear reading equals the reference libraries, and a square is found where it was drawn."""

from __future__ import annotations

import json
from fractions import Fraction

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from scipy.ndimage import map_coordinates

from ercr.image import geometry as geometry_module
from ercr.image.geometry import Geometry, Panel, resample
from ercr.models.pasting import paste_box
from tests import borders
from tests.conftest import FAMILIES


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40), st.integers(1, 40))
def test_resample_equals_torch_and_opencv(h, w, height, width):
    maps = torch.from_numpy(np.random.default_rng(h * 97 + w).random((2, h, w)))
    box = (0.0, 0.0, 100.0, 60.0)
    ours = resample(maps, Panel((h, w), box), Panel((height, width), box))
    torch_says = F.interpolate(maps[None], (height, width), mode="bilinear", align_corners=False)[0]
    assert torch.allclose(ours, torch_says, atol=1e-9)
    opencv_says = cv2.resize(maps[0].numpy(), (width, height), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_allclose(ours[0].numpy(), opencv_says, atol=1e-6)


def test_tiles_are_stitched_row_by_row_and_the_thumbnail_averaged_in():
    size, grid = (40, 60), (2, 2)
    boxes = [(c * 20.0, r * 20.0, c * 20.0 + 20, r * 20.0 + 20) for r in range(2) for c in range(3)]
    panels = (*(Panel(grid, box) for box in boxes), Panel(grid, (0.0, 0.0, 60.0, 40.0)))
    geometry = Geometry(size, panels, (2, 3))
    tiles = torch.arange(6.0).repeat_interleave(4)
    stitched = geometry.stitch(torch.cat([tiles, torch.full((4,), 10.0)]))
    expected = np.kron(np.arange(6.0).reshape(2, 3), np.ones((2, 2)))
    np.testing.assert_allclose(stitched.numpy(), (expected + 10) / 2)


def test_reading_a_view_by_one_matrix_equals_stitching_and_warping():
    boxes = [(c * 20.0, 0.0, c * 20.0 + 20, 20.0) for c in range(3)]
    tiled = Geometry((20, 60), (*(Panel((2, 3), box) for box in boxes), Panel((3, 2), (0.0, 0.0, 60.0, 20.0))), (1, 3))
    padded = Geometry((20, 60), (Panel((4, 7), (-10.0, -10.0, 70.0, 30.0)),))
    for view, anchor in ((tiled, padded), (padded, tiled), (tiled, tiled)):
        values = torch.rand(5, view.tokens, dtype=torch.float64)
        expected = view.warp_to(anchor, view.stitch(values))
        assert torch.allclose(view.read_at(anchor, values), expected, atol=1e-12)


def test_what_is_cropped_away_has_no_evidence_and_says_so():
    geometry = Geometry((100, 200), (Panel((4, 4), (50.0, 0.0, 150.0, 100.0)),))
    pixels = geometry.to_pixels(np.ones((4, 4)))
    assert geometry.seen == 0.5
    assert not geometry.whole
    assert pixels[:, 50:150].min() == 1
    assert pixels[:, :50].max() == 0
    assert pixels[:, 150:].max() == 0
    assert (geometry.seen_pixels() == (pixels > 0)).all()


def test_cells_on_padding_are_invalid_and_a_sliver_still_has_cells():
    padded = Geometry((50, 100), (Panel((4, 4), (0.0, -25.0, 100.0, 75.0)),))
    assert padded.valid.tolist() == [[False] * 4, [True] * 4, [True] * 4, [False] * 4]
    sliver = Geometry((1, 1000), (Panel((4, 4), (0.0, -499.5, 1000.0, 500.5)),))
    assert sliver.valid.any()


def pasted(sides, cells, cell, scale):
    """A picture pasted on a square canvas of cells, and where it lies on it in whole pixels: start, stop per axis."""
    canvas = cells * cell
    content = [max(1, round(canvas * scale * side / max(sides))) for side in sides]
    starts = [(canvas - length) // 2 for length in content]
    geometry = Geometry(sides, (Panel((cells, cells), paste_box(sides, (canvas, canvas), tuple(content))),))
    return geometry, [(start, start + length) for start, length in zip(starts, content, strict=True)]


PASTED = {
    "sides": st.tuples(st.integers(1, 999), st.integers(1, 999)),
    "cells": st.integers(1, 26),
    "cell": st.sampled_from([2, 4, 14, 16, 28, 31]),
    "scale": st.sampled_from([0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.25, 1.6]) | st.floats(0.05, 2),
}


@given(**PASTED)
def test_a_cell_counts_when_more_than_half_of_its_pixels_are_on_the_picture(sides, cells, cell, scale):
    geometry, ((top, bottom), (left, right)) = pasted(sides, cells, cell, scale)
    shown = np.zeros((cells * cell, cells * cell), bool)
    shown[max(top, 0) : bottom, max(left, 0) : right] = True
    np.testing.assert_array_equal(geometry.valid, borders.counted(shown, (cells, cells)))


@given(**PASTED)
def test_a_mirrored_placement_is_mirrored_in_everything(sides, cells, cell, scale):
    geometry, _ = pasted(sides, cells, cell, scale)
    (left, top, right, bottom), (height, width) = geometry.canvas.edges, sides
    turned = Geometry(sides, (Panel((cells, cells), (width - right, height - bottom, width - left, height - top)),))
    flip = np.s_[..., ::-1, ::-1]
    np.testing.assert_array_equal(turned.valid, geometry.valid[flip])
    np.testing.assert_array_equal(turned.seen_pixels((9, 14)), geometry.seen_pixels((9, 14))[flip])
    anchor = Geometry(sides, (Panel((7, 6), (0, 0, width, height)),))
    np.testing.assert_array_equal(turned.covers(anchor), geometry.covers(anchor)[flip])
    maps = np.random.default_rng(cells).random((cells, cells))
    there, here = turned.to_pixels(maps[flip], (9, 14)), geometry.to_pixels(maps, (9, 14))
    np.testing.assert_allclose(there, here[flip], atol=1e-4)


@given(**PASTED)
def test_a_view_covers_the_cells_whose_centre_it_was_shown(sides, cells, cell, scale):
    """A centre on the border of what was shown is not within it."""
    view, placed = pasted(sides, cells, cell, scale)
    anchor = Geometry(sides, (Panel((5, 5), (0, 0, sides[1], sides[0])),))
    within = []
    for start, stop in placed:
        # in tenths of a canvas pixel, so that the centres of five cells are whole numbers
        centres = [10 * start + (2 * i + 1) * (stop - start) for i in range(5)]
        within.append([0 < at < 10 * cells * cell for at in centres])
    expected = np.outer(*within)
    np.testing.assert_array_equal(view.covers(anchor), expected if expected.any() else np.ones((5, 5), bool))


@given(**PASTED)
def test_boxes_that_an_older_file_holds_as_floats_mean_the_same(sides, cells, cell, scale):
    geometry, _ = pasted(sides, cells, cell, scale)
    stored = geometry.to_dict()
    assert Geometry.from_dict(stored) == geometry
    for panel in stored["panels"]:
        del panel["exact"]
    assert Geometry.from_dict(stored) == geometry


@pytest.mark.parametrize("family", ["llava", "llava_pad", "internvl", "internvl_single"])
def test_cells_at_the_border_are_those_that_the_models_own_pixels_say(load, family):
    adapter = load(family).adapter
    halves = 0
    for size in ((224, 224), (301, 422), (97, 331)):
        cells = adapter.image_inputs(Image.new("RGB", size[::-1]))[1].grid[1]
        scales = (0.4, 0.5, 0.75, 1 - 1 / cells)  # the last leaves half a cell on either side
        for geometry, shown in borders.on_picture(adapter, size, scales):
            np.testing.assert_array_equal(geometry.valid, borders.counted(shown, geometry.grid))
            assert not (borders.centred(shown) and borders.lopsided(geometry))
            halves += borders.halved(shown, geometry.grid)
    assert halves  # the case that rounding decided is among them


def test_geometry_survives_a_round_trip_through_plain_data():
    geometry = Geometry((40, 60), (Panel((2, 3), (0.0, 0.0, 60.0, 40.0), (Fraction(1, 3), Fraction(-2, 7))),))
    assert Geometry.from_dict(json.loads(json.dumps(geometry.to_dict()))) == geometry


def test_files_without_a_lean_look_straight_ahead():
    geometry = Geometry((40, 60), (Panel((2, 3), (0.0, 0.0, 60.0, 40.0)),))
    assert geometry.whole
    stored = geometry.to_dict()
    del stored["panels"][0]["lean"]
    assert Geometry.from_dict(stored) == geometry


LEANS = st.fractions(-1, 1, max_denominator=12)


@given(st.integers(2, 6), st.integers(2, 6), LEANS, LEANS)
def test_cells_that_look_aside_are_read_where_they_look(rows, columns, down, right):
    """A map that holds where its own cells look is, read anywhere between them, the place itself."""
    size = (60, 84)
    leaning = Geometry(size, (Panel((rows, columns), (-3, 2, 90, 55), (down, right)),))
    (left, top, end_x, end_y), grid = leaning.box, leaning.grid
    y = top + (np.arange(rows) + 0.5 + float(down)) * (end_y - top) / rows
    x = left + (np.arange(columns) + 0.5 + float(right)) * (end_x - left) / columns
    places = torch.from_numpy(np.stack(np.meshgrid(y, x, indexing="ij")))
    pixels = Geometry(size, (Panel(size, (0, 0, 84, 60)),))
    read = leaning.warp_to(pixels, places)
    for found, own, length in ((read[0][:, 0], y, 60), (read[1][0], x, 84)):
        at = np.arange(length) + 0.5
        np.testing.assert_allclose(found, np.clip(at, own.min(), own.max()), atol=1e-6)
    at = np.stack(np.meshgrid(np.arange(60) + 0.5, np.arange(84) + 0.5, indexing="ij"))
    back = pixels.warp_to(leaning, torch.from_numpy(at))
    np.testing.assert_allclose(back[0][:, 0], np.clip(y, 0.5, 59.5), atol=1e-6)
    np.testing.assert_allclose(back[1][0], np.clip(x, 0.5, 83.5), atol=1e-6)
    straight = Geometry(size, (Panel(grid, leaning.box),))
    np.testing.assert_array_equal(leaning.valid, straight.valid)  # areas and what was shown stay the canvas's
    np.testing.assert_array_equal(leaning.seen_pixels(), straight.seen_pixels())
    full = Geometry(size, (Panel((5, 5), (0, 0, 84, 60)),))
    shown = leaning.valid & np.outer((y > 0) & (y < 60), (x > 0) & (x < 84))
    np.testing.assert_array_equal(full.covers(leaning), shown if shown.any() else leaning.valid)


def brightness(adapter, pixels, geometry):
    """Mean brightness under each visual token, from the tensors the model gets and nothing else."""
    values = pixels["pixel_values"].double()
    if "image_grid_thw" in pixels:
        return values.mean(1).reshape(-1, adapter.image_processor.merge_size**2).mean(1)
    return F.adaptive_avg_pool2d(values.mean(1, keepdim=True), geometry.panels[0].grid).flatten()


def shares(panel, square, size):
    """Share of each cell that a square covers, and which cells lie on the image, from the panel's box alone."""
    (left, top, right, bottom), (rows, columns) = panel.box, panel.grid
    y, x = np.linspace(top, bottom, rows + 1), np.linspace(left, right, columns + 1)
    cover_y = np.diff(np.clip(y, square[1], square[3])) / np.diff(y)
    cover_x = np.diff(np.clip(x, square[0], square[2])) / np.diff(x)
    on_y = (y[:-1] >= -1e-6) & (y[1:] <= size[0] + 1e-6)
    on_x = (x[:-1] >= -1e-6) & (x[1:] <= size[1] + 1e-6)
    return np.outer(cover_y, cover_x), np.outer(on_y, on_x)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [(301, 422), (420, 299), (360, 360), (200, 601)])
@pytest.mark.parametrize(("kind", "scale"), [("anchor", 1.0), ("pad", 0.5), ("pad", 0.75), ("interpolate", 0.5)])
def test_a_white_square_lands_where_it_was_drawn(load, family, size, kind, scale):
    adapter = load(family).adapter
    height, width = size
    square = (width // 2 - 25, height // 2 - 70, width // 2 + 71, height // 2 + 26)
    image = Image.new("RGB", (width, height))
    ImageDraw.Draw(image).rectangle((square[0], square[1], square[2] - 1, square[3] - 1), fill="white")
    pixels, geometry = adapter.image_inputs(image)
    if kind != "anchor":
        pixels, geometry = adapter.view_inputs(image, geometry, scale, kind)
    mean, std = np.array(adapter.image_processor.image_mean), np.array(adapter.image_processor.image_std)
    black, white = (-mean / std).mean(), ((1 - mean) / std).mean()
    light = (brightness(adapter, pixels, geometry).numpy() - black) / (white - black)
    start = 0
    for panel in geometry.panels:
        expected, on_image = shares(panel, square, size)
        found = light[start : start + panel.tokens].reshape(panel.grid)
        # a shift by half a canvas pixel would move an eighth of a cell; resampling itself blurs less than this
        assert np.abs(found - expected)[on_image].max() < 0.1
        start += panel.tokens
    expected, on_image = shares(geometry.canvas, square, size)
    cells = np.where(on_image & (expected == expected.max()), geometry.stitch(torch.from_numpy(light)).numpy(), 0)
    y, x = np.unravel_index(geometry.to_pixels(cells).argmax(), size)
    half = [(geometry.box[i + 2] - geometry.box[i]) / geometry.grid[1 - i] / 2 for i in (0, 1)]  # of a cell
    assert square[0] - half[0] < x < square[2] + half[0]
    assert square[1] - half[1] < y < square[3] + half[1]


@given(st.integers(0, 10_000))
def test_a_map_is_read_between_any_two_canvases_at_the_centres_of_the_others_cells(seed):
    """Boxes anywhere, read by SciPy on the cells' own coordinates."""
    rng = np.random.default_rng(seed)

    def panel():
        left, top = (int(n) for n in rng.integers(-20, 30, 2))
        width, height = (int(n) for n in rng.integers(3, 60, 2))
        return Panel((int(rng.integers(1, 7)), int(rng.integers(1, 7))), (left, top, left + width, top + height))

    source, target = panel(), panel()
    maps = rng.random((2, *source.grid))
    at = []
    for axis in (0, 1):
        (start, stop), (low, high) = ((p.box[1 - axis], p.box[3 - axis]) for p in (source, target))
        centres = low + (np.arange(target.grid[axis]) + 0.5) * (high - low) / target.grid[axis]
        at.append((centres - start) / (stop - start) * source.grid[axis] - 0.5)
    places = np.stack(np.meshgrid(*at, indexing="ij"))
    expected = [map_coordinates(map_, places, order=1, mode="nearest") for map_ in maps]
    np.testing.assert_allclose(resample(torch.from_numpy(maps), source, target).numpy(), expected, atol=1e-9)


def test_large_readings_are_made_in_two_steps_and_small_ones_by_one_matrix(monkeypatch):
    view, anchor = (Geometry((30, 40), (Panel(grid, (0, 0, 40, 30)),)) for grid in ((3, 4), (5, 6)))
    made = []
    monkeypatch.setattr(geometry_module, "_reading", lambda *_: made.append(1) or torch.zeros(12, 30))
    for entries, by_matrix in ((12 * 30, True), (12 * 30 - 1, False)):
        monkeypatch.setattr(geometry_module, "_MAX_ENTRIES", entries)
        made.clear()
        assert view.read_at(anchor, torch.rand(2, 12)).shape == (2, 5, 6)
        assert bool(made) == by_matrix
    monkeypatch.setattr(geometry_module, "_MAX_ENTRIES", 12 * 30)
    made.clear()
    assert torch.equal(view.read_at(view, torch.arange(12.0)), torch.arange(12.0).view(3, 4))  # in place: as they are
    assert made == []


def test_a_canvas_wholly_beside_the_picture_shows_nothing_and_reads_its_fullest_cells():
    for box in ((50, 0, 90, 30), (-40, 0, 0, 30), (0, 31, 40, 60), (0, -60, 40, -1)):
        beside = Geometry((30, 40), (Panel((3, 4), box),))
        assert beside.seen == 0
        assert not beside.seen_pixels().any()
        assert not beside.to_pixels(np.ones((3, 4))).any()
        assert beside.valid.any()
        anchor = Geometry((30, 40), (Panel((3, 4), (0, 0, 40, 30)),))
        np.testing.assert_array_equal(beside.covers(anchor), anchor.valid)


def test_numbers_stand_for_the_simple_fractions_they_are_nearest_to():
    panel = Panel((2, 2), (1 / 3, -2 / 7, 100 / 3, 50 + 1 / 99_999))
    assert panel.edges == (Fraction(1, 3), Fraction(-2, 7), Fraction(100, 3), 50 + Fraction(1, 99_999))
    assert panel.box == tuple(float(edge) for edge in panel.edges)


def test_many_maps_are_enlarged_at_once_and_tiled_layouts_survive_plain_data():
    maps = np.random.default_rng(0).random((2, 3, 4, 5), np.float32)
    geometry = Geometry((20, 30), (Panel((4, 5), (-3, 0, 33, 20)),))
    found = geometry.to_pixels(maps)
    assert found.shape == (2, 3, 20, 30)
    np.testing.assert_allclose(found[1, 2], geometry.to_pixels(maps[1, 2]), atol=1e-6)
    tiled = Geometry((20, 60), tuple(Panel((2, 2), (20 * c, 0, 20 * c + 20, 20)) for c in range(3)), (1, 3))
    assert Geometry.from_dict(tiled.to_dict()) == tiled


def test_a_view_of_the_whole_picture_covers_all_cells_of_a_small_crop():
    whole, crop = (Geometry((30, 40), (Panel((4, 4), box),)) for box in ((0, 0, 40, 30), (15, 10, 25, 20)))
    assert whole.covers(crop).all()
