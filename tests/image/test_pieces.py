"""Several pictures and clips: each piece is treated as if it were alone, and one picture as it always was."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from ercr.errors import InputError
from ercr.image.geometry import Geometry, Panel
from ercr.image.pieces import Piece, Pieces, covers, read_at, read_geometry, sheets_of, split, together
from ercr.methods.readout import normalise, valid_cells
from ercr.methods.smoothing import rank_gaussian
from ercr.words.maps import Word


def picture(rows, columns, size=(60, 80), box=None):
    return Geometry(size, (Panel((rows, columns), box or (0.0, 0.0, size[1], size[0])),))


def tiled():
    panels = (*(Panel((3, 2), (c * 20.0, 0.0, c * 20.0 + 20, 20.0)) for c in range(3)), Panel((2, 2), (0, 0, 60, 20)))
    return Geometry((20, 60), panels, (1, 3))


def pieces(scale=1):
    """A picture, a clip of three slices, a tiled picture and one on padding."""
    padded = picture(6 * scale, 6 * scale, (30, 60), (0.0, -15.0, 60.0, 45.0))
    clip = Piece(picture(2 * scale, 4 * scale), ((0.0, 0.5), (1.0, 1.5), (2.0,)), 2.5)
    return Pieces((Piece(picture(5 * scale, 3 * scale)), clip, Piece(tiled()), Piece(padded)))


def alone(geometry):
    """Every grid of several pieces as a geometry of its own."""
    return [piece.geometry for piece in geometry.pieces for _ in range(piece.slices)]


def test_scores_are_stitched_and_read_at_another_view_as_for_each_piece_alone():
    view, anchor = pieces(), pieces(2)
    values = torch.rand(5, view.tokens, dtype=torch.float64)
    parts = torch.split(values, [geometry.tokens for geometry in alone(view)], dim=-1)
    stitched = [geometry.stitch(part).flatten(1) for geometry, part in zip(alone(view), parts, strict=True)]
    assert torch.equal(view.stitch(values)[:, 0], torch.cat(stitched, 1))
    read = [v.read_at(a, part).flatten(1) for v, a, part in zip(alone(view), alone(anchor), parts, strict=True)]
    assert torch.allclose(read_at(view, anchor, values)[:, 0], torch.cat(read, 1), atol=1e-12)
    assert torch.allclose(view.warp_to(anchor, view.stitch(values)), read_at(view, anchor, values), atol=1e-12)
    shown = [v.covers(a).ravel() for v, a in zip(alone(view), alone(anchor), strict=True)]
    np.testing.assert_array_equal(covers(view, anchor)[0], np.concatenate(shown))


def test_maps_are_divided_into_those_of_the_pieces():
    geometry = pieces()
    row = np.arange(2 * geometry.grid[1], dtype=np.float32).reshape(2, 1, -1)
    parts = split(geometry, row)
    assert [part.shape for part in parts] == [(2, 5, 3), (2, 3, 2, 4), (2, 3, 6), (2, 6, 6)]
    np.testing.assert_array_equal(np.concatenate([part.reshape(2, -1) for part in parts], 1), row[:, 0])


def test_the_filter_treats_every_grid_as_if_it_were_alone():
    geometry = pieces()
    maps = torch.rand(4, *geometry.grid)
    filtered = rank_gaussian(maps, sheets_of(geometry))[:, 0]
    grids = [g.grid for g in alone(geometry)]
    parts = torch.split(maps[:, 0], [rows * columns for rows, columns in grids], dim=1)
    expected = [rank_gaussian(part.view(4, *grid)).flatten(1) for part, grid in zip(parts, grids, strict=True)]
    assert torch.equal(filtered, torch.cat(expected, 1))
    single = picture(5, 7)
    assert torch.equal(
        rank_gaussian(maps[:, :, :35].view(4, 5, 7), sheets_of(single)), rank_gaussian(maps[:, :, :35].view(4, 5, 7))
    )


def test_maps_are_normalised_over_all_pieces_together():
    geometry = pieces()
    maps = torch.rand(3, *geometry.grid)
    maps[0, 0, 3] = 9.0  # in the first picture
    found = normalise(maps, valid_cells(geometry, torch.device("cpu")))
    parts = split(geometry, found)
    assert parts[0][0].max() == 1
    assert max(float(part[0].max()) for part in parts[1:]) < 0.2
    assert (parts[3][:, ~geometry.pieces[3].geometry.valid] == 0).all()


def test_one_picture_keeps_its_own_geometry():
    geometry = picture(4, 5)
    assert together([Piece(geometry)]) is geometry
    assert isinstance(together([Piece(geometry, ((0.0,),), 1.0)]), Pieces)


def test_a_moment_belongs_to_the_slice_of_the_nearest_frame():
    clip = pieces().pieces[1]
    assert clip.spans == [(0.0, 0.75), (0.75, 1.75), (1.75, 2.5)]
    assert [clip.slice_at(time) for time in (0, 0.7, 0.8, 1.7, 1.8, 2.5)] == [0, 0, 1, 1, 2, 2]
    for time in (-0.1, 2.6):
        with pytest.raises(InputError, match=r"lasts from 0 to 2\.50 seconds"):
            clip.slice_at(time)


def test_a_stored_geometry_is_read_back():
    for geometry in (pieces(), picture(3, 4)):
        assert read_geometry(json.loads(json.dumps(geometry.to_dict()))) == geometry


def test_a_word_is_where_its_tokens_are_each_as_much_as_it_is_strong():
    geometry = together([Piece(picture(4, 4)), Piece(picture(2, 8))])
    first, ending = np.zeros((2, 1, 1, 32), np.float32)
    first[0, 0, :4] = 0.8  # a few cells of the first picture
    ending[0, 0] = 0.2  # everywhere
    word = Word("dogs", (), np.maximum(first, ending)[0], geometry=geometry, parts=np.stack([first[0], ending[0]]))
    shares = {place.picture: place.share for place in word.where()}
    assert shares == pytest.approx({0: 0.8 + 0.2 / 2, 1: 0.2 / 2})
    assert word.picture == 0
    alone = Word("dog", (), first[0], geometry=geometry)
    assert {place.picture: place.share for place in alone.where()} == {0: 1.0, 1: 0.0}
