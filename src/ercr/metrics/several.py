"""All pixels of several pictures and clips as one row, so that what is scored of one picture is scored of all together.

A picture gives its pixels row by row, a clip those of its frames one after another. So thresholds, overlaps and the
highest pixels are those of everything that was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.errors import InputError
from ercr.image.clips import LoadedClip
from ercr.image.geometry import Geometry
from ercr.image.images import LoadedImage
from ercr.image.pieces import AnyGeometry, Piece, pieces_of, split
from ercr.words import WordMaps

Labels = NDArray[Any]
Size = tuple[int, int]


class PixelRow:
    """The pixels of some pieces, each picture or frame at a size of its own."""

    def __init__(self, geometry: AnyGeometry, sizes: Sequence[Size]) -> None:
        """`sizes` are the height and width of each piece's pictures."""
        self._geometry, self._pieces, self._sizes = geometry, pieces_of(geometry), list(sizes)
        if len(self._sizes) != len(self._pieces):
            raise InputError(f"There are {len(self._pieces)} pictures and clips, and labels for {len(self._sizes)}.")

    @classmethod
    def of(cls, explanation: WordMaps, labels: Sequence[Labels] | None = None) -> PixelRow:
        """At the sizes of the labels, or of the pictures themselves."""
        sizes = [item.size for item in explanation.media] if labels is None else [own.shape[-2:] for own in labels]
        return cls(explanation.geometry, [(int(height), int(width)) for height, width in sizes])

    @property
    def size(self) -> int:
        """Number of pixels."""
        areas = (height * width for height, width in self._sizes)
        return sum(piece.frames * area for piece, area in zip(self._pieces, areas, strict=True))

    def to_pixels(self, maps: NDArray[Any], size: Size | None = None) -> NDArray[np.float32]:
        """Maps [..., 1, cells] at all pixels [..., 1, pixels]."""
        return np.asarray(self._read(maps, lambda map_, geometry, own: geometry.to_pixels(map_, own)), np.float32)

    def enlarged(
        self, map_: NDArray[np.uint8], enlarge: Callable[[NDArray[np.uint8], Geometry, Size], NDArray[np.uint8]]
    ) -> NDArray[np.uint8]:
        """A map [1, cells] of levels at all pixels [1, pixels], each grid enlarged by a function."""
        return np.asarray(self._read(map_, enlarge), np.uint8)

    def labels(self, labels: Sequence[Labels]) -> Labels:
        """Label pictures [H, W] and [frames, H, W] as one row [1, pixels]."""
        for own, piece in zip(labels, self._pieces, strict=True):
            if own.size != piece.frames * own.shape[-1] * own.shape[-2]:
                raise InputError(f"A clip has {piece.frames} frames and labels of another number, {list(own.shape)}.")
        return np.concatenate([own.ravel() for own in labels])[None]

    def _read(self, maps: NDArray[Any], read: Callable[[Any, Geometry, Size], NDArray[Any]]) -> NDArray[Any]:
        parts = []
        for own, piece, size in zip(split(self._geometry, maps), self._pieces, self._sizes, strict=True):
            grids = own.reshape(*maps.shape[:-2], piece.slices, *piece.geometry.grid)
            slices = [read(grids[..., index, :, :], piece.geometry, size) for index in range(piece.slices)]
            flat = [pixels.reshape(*maps.shape[:-2], -1) for pixels in slices]
            parts += [flat[index] for index in piece.slice_of_frame]
        return np.concatenate(parts, -1)[..., None, :]


def picture_row(media: Sequence[LoadedImage | LoadedClip]) -> NDArray[np.uint8]:
    """The colours of all pixels [1, pixels, 3]."""
    return np.concatenate([np.asarray(frame, np.uint8).reshape(-1, 3) for item in media for frame in _frames(item)])[
        None
    ]


def from_row(row: NDArray[np.uint8], media: Sequence[LoadedImage | LoadedClip]) -> list[Image.Image | LoadedClip]:
    """The pictures and clips that a row of colours shows."""
    found: list[Image.Image | LoadedClip] = []
    start = 0
    for item in media:
        height, width = item.size
        made = []
        for _ in _frames(item):
            stop = start + height * width
            made.append(Image.fromarray(np.ascontiguousarray(row[0, start:stop].reshape(height, width, 3))))
            start = stop
        found.append(replace(item, frames=tuple(made)) if isinstance(item, LoadedClip) else made[0])
    return found


def share_there(explanation: WordMaps, map_: NDArray[Any], labels: Sequence[Labels], category: int) -> dict[str, Any]:
    """The share of a map's evidence in the pictures and slices that show a category, and whether most of it is there.

    As in `Word.where`, every picture and every slice of a clip counts the same, whatever its number of cells.
    """
    amounts, there, piece_of = list[float](), list[bool](), list[int]()
    parts = zip(split(explanation.geometry, map_), explanation.pieces, labels, strict=True)
    for at, (own, piece, truth) in enumerate(parts):
        grids = own.reshape(piece.slices, -1)
        amounts += (grids.sum(1) / max(int(piece.geometry.valid.sum()), 1)).tolist()
        there += _shown(piece, truth == category)
        piece_of += [at] * piece.slices
    total = sum(amounts)
    if total <= 0 or not any(there):
        return {"share_there": None, "most_there": None}
    by_piece = np.bincount(piece_of, amounts)
    with_it = {at for at, here in zip(piece_of, there, strict=True) if here}
    return {
        "share_there": sum(amount for amount, here in zip(amounts, there, strict=True) if here) / total,
        "most_there": int(by_piece.argmax()) in with_it,
    }


def _shown(piece: Piece, mask: NDArray[np.bool_]) -> list[bool]:
    """Whether a mask [H, W], or [frames, H, W] of a clip, has a pixel in each slice."""
    if not piece.clip:
        return [bool(mask.any())]
    return [bool(mask[start:stop].any()) for start, stop in pairwise(piece.first_frames)]


def _frames(item: LoadedImage | LoadedClip) -> Iterable[Image.Image]:
    return item.frames if isinstance(item, LoadedClip) else (item.rgb,)
