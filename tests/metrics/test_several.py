"""Scores of several pictures and clips are those of all their pixels together."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ercr.errors import InputError
from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.image.gallery import Gallery
from ercr.image.geometry import Geometry, Panel
from ercr.image.images import LoadedImage
from ercr.image.pieces import Piece, Pieces
from ercr.metrics.several import PixelRow, from_row, picture_row, share_there
from ercr.words import WordMaps

rng = np.random.default_rng(0)


def picture(width, height):
    return Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8))


def grid(rows, columns, size):
    return Geometry(size, (Panel((rows, columns), (0.0, 0.0, size[1], size[0])),))


@pytest.fixture
def explanation():
    """A picture of 2 x 3 cells and a clip of two slices of 2 x 2, of two and of one frame."""
    frames = tuple(picture(20, 16) for _ in range(3))
    clip = LoadedClip(frames, (0, 1, 2), Facts(3, 1.0, (16, 20)))
    media = Gallery((LoadedImage(picture(30, 24)), clip))
    geometry = Pieces((Piece(grid(2, 3, (24, 30))), Piece(grid(2, 2, (16, 20)), ((0.0, 1.0), (2.0,)), 3.0)))
    return WordMaps(media, geometry, (), rng.random((1, 1, 14)).astype(np.float32), {})


def test_maps_are_read_at_every_pixel_of_every_frame(explanation):
    row = PixelRow.of(explanation)
    found = row.to_pixels(explanation.maps[0])
    assert found.shape == (1, row.size) == (1, 24 * 30 + 3 * 16 * 20)
    first, clip = explanation.maps[0][:, :6].reshape(2, 3), explanation.maps[0][:, 6:].reshape(2, 2, 2)
    pieces = explanation.pieces
    expected = [pieces[0].geometry.to_pixels(first), *(pieces[1].geometry.to_pixels(clip[i]) for i in (0, 0, 1))]
    np.testing.assert_array_equal(found[0], np.concatenate([part.ravel() for part in expected]))
    np.testing.assert_array_equal(row.to_pixels(explanation.maps)[0], found)


def test_pictures_and_clips_come_back_from_their_row(explanation):
    again = from_row(picture_row(explanation.media), explanation.media)
    assert np.array_equal(np.asarray(again[0]), np.asarray(explanation.media[0].rgb))
    for frame, other in zip(again[1].frames, explanation.media[1].frames, strict=True):
        assert np.array_equal(np.asarray(frame), np.asarray(other))


def test_shares_count_each_picture_and_slice_once(explanation):
    labels = [np.zeros((24, 30), np.uint8), np.zeros((3, 16, 20), np.uint8)]
    labels[1][2, 3, 3] = 7  # in the last frame, so in the second slice
    map_ = np.zeros((1, 14), np.float32)
    map_[0, :6], map_[0, 6:10], map_[0, 10:] = 0.5, 0.25, 0.75
    found = share_there(explanation, map_, labels, 7)
    assert found == {"share_there": pytest.approx(0.75 / 1.5), "most_there": True}
    labels[0][0, 0] = 9
    assert share_there(explanation, map_, labels, 9) == {"share_there": pytest.approx(0.5 / 1.5), "most_there": False}
    assert share_there(explanation, map_, labels, 3) == {"share_there": None, "most_there": None}


def test_labels_must_be_those_of_the_pieces(explanation):
    with pytest.raises(InputError, match="2 pictures and clips, and labels for 1"):
        PixelRow.of(explanation, [np.zeros((24, 30))])
    with pytest.raises(InputError, match="has 3 frames"):
        PixelRow.of(explanation).labels([np.zeros((24, 30)), np.zeros((2, 16, 20))])
