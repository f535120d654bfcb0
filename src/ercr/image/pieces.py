"""Where the cells of several pictures and clips lie: one piece after another, each with a geometry of its own.

A map of several pieces is one row of cells [1, cells]: those of the first piece, row by row, then those of the next
one; a clip has its slices one after another. So a method that works on maps of one picture works on these, and what it
takes over a map (a minimum, a fit) it takes over all pieces together. Only what reads a cell's neighbours must know
where a picture ends: `sheets`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ercr.errors import InputError
from ercr.image.geometry import Geometry

Maps = TypeVar("Maps", NDArray[Any], Tensor)
Sheet = tuple[int, int, int]  # how many grids of equal size follow each other, and their rows and columns


@dataclass(frozen=True)
class Piece:
    """A picture, or a clip whose slices all have the same geometry.

    A slice is what one grid of a clip shows: one frame, or two in families whose tokens cover two. `times` holds the
    seconds at which the frames of each slice stand; a picture has none. `end` is how long the clip is.
    """

    geometry: Geometry
    times: tuple[tuple[float, ...], ...] = ()
    end: float = 0.0

    @property
    def clip(self) -> bool:
        return bool(self.times)

    @property
    def slices(self) -> int:
        """Number of grids: 1 for a picture."""
        return len(self.times) or 1

    @property
    def tokens(self) -> int:
        return self.slices * self.geometry.tokens

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its maps: [h, w], or [slices, h, w] of a clip."""
        return (self.slices, *self.geometry.grid) if self.clip else self.geometry.grid

    @property
    def cells(self) -> int:
        rows, columns = self.geometry.grid
        return self.slices * rows * columns

    @property
    def first_frames(self) -> list[int]:
        """The index of each slice's first frame among the clip's frames, and their number at the end."""
        return [0, *accumulate(len(times) for times in self.times)]

    @property
    def frames(self) -> int:
        """Number of frames: 1 for a picture."""
        return self.first_frames[-1] if self.clip else 1

    @property
    def slice_of_frame(self) -> list[int]:
        """The slice that shows each frame."""
        return [index for index, times in enumerate(self.times) for _ in times] if self.clip else [0]

    @cached_property
    def spans(self) -> list[tuple[float, float]]:
        """Start and stop of each slice in seconds: a moment belongs to the slice of the nearest frame."""
        borders = [(before[-1] + after[0]) / 2 for before, after in pairwise(self.times)]
        return list(pairwise([0.0, *borders, max(self.end, self.times[-1][-1])])) if self.clip else []

    def slice_at(self, time: float) -> int:
        """The slice of a clip that shows a moment."""
        if not 0 <= time <= self.spans[-1][1]:
            raise InputError(f"The clip lasts from 0 to {self.spans[-1][1]:.2f} seconds, so there is no time {time:g}.")
        return min(bisect_right([start for start, _ in self.spans], time) - 1, self.slices - 1)

    def frame_at(self, time: float) -> int:
        """The frame of a clip that stands nearest to a moment, among those of the slice that shows it."""
        first, behind = self.first_frames[(at := self.slice_at(time)) : at + 2]
        return min(range(first, behind), key=lambda frame: abs(self.times[at][frame - first] - time))

    def to_dict(self) -> dict[str, Any]:
        data = self.geometry.to_dict()
        return {**data, "times": [list(times) for times in self.times], "end": self.end} if self.clip else data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Piece:
        """Read what `to_dict` wrote."""
        times = tuple(tuple(float(time) for time in shown) for shown in data.get("times", ()))
        return cls(Geometry.from_dict(data), times, float(data.get("end", 0.0)))


@dataclass(frozen=True)
class Pieces:
    """The geometry of several pieces, or of one clip, with the interface that methods need of a `Geometry`."""

    pieces: tuple[Piece, ...]

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    @cached_property
    def grid(self) -> tuple[int, int]:
        return 1, sum(piece.cells for piece in self.pieces)

    @cached_property
    def sheets(self) -> tuple[Sheet, ...]:
        """The grids that a row of cells is made of: cells of different grids are no neighbours."""
        return tuple((piece.slices, *piece.geometry.grid) for piece in self.pieces)

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """As of one geometry, for each piece by itself."""
        return self._each(lambda piece: piece.geometry.valid)

    @property
    def seen(self) -> float:
        """Share of the pieces that the model was shown, each piece counting the same."""
        return sum(piece.geometry.seen for piece in self.pieces) / len(self.pieces)

    @property
    def whole(self) -> bool:
        return all(piece.geometry.whole for piece in self.pieces)

    def split(self, maps: Maps) -> list[Maps]:
        """Maps [..., 1, cells] as those of each piece: [..., h, w], or [..., slices, h, w] of a clip."""
        borders = [0, *accumulate(piece.cells for piece in self.pieces)]
        parts = zip(pairwise(borders), self.pieces, strict=True)
        return [maps[..., 0, start:stop].reshape(*maps.shape[:-2], *piece.shape) for (start, stop), piece in parts]

    def stitch(self, values: Tensor) -> Tensor:
        """Scores of the visual tokens [..., tokens] as maps [..., 1, cells]."""
        return _row(piece.geometry.stitch(part) for piece, part in self._parts(values))

    def warp_to(self, anchor: Pieces, maps: Tensor) -> Tensor:
        """Bilinear reading of maps at the cells of another view, for each piece by itself."""
        found = []
        for part, piece, other in zip(self.split(maps), self.pieces, anchor.pieces, strict=True):
            grids = part.reshape(*maps.shape[:-2], piece.slices, *piece.geometry.grid)
            found.append(piece.geometry.warp_to(other.geometry, grids))
        return _row(found)

    def read_at(self, anchor: Pieces, values: Tensor) -> Tensor:
        """Scores of this view's visual tokens [..., tokens] at another view's cells [..., 1, cells]."""
        parts = zip(self._parts(values), anchor.pieces, strict=True)
        return _row(piece.geometry.read_at(other.geometry, part) for (piece, part), other in parts)

    def covers(self, anchor: Pieces) -> NDArray[np.bool_]:
        """Valid cells of the anchor that look within what this view was shown."""
        views = iter(self.pieces)
        return anchor._each(lambda piece: next(views).geometry.covers(piece.geometry))

    def _each(self, cells: Any) -> NDArray[np.bool_]:
        """A mask [1, cells] from one [h, w] for each piece, the same for all slices of a clip."""
        return np.concatenate([np.tile(cells(piece).ravel(), piece.slices) for piece in self.pieces])[None]

    def _parts(self, values: Tensor) -> list[tuple[Piece, Tensor]]:
        """The scores of each piece's tokens [..., slices, tokens]."""
        parts = torch.split(values, [piece.tokens for piece in self.pieces], dim=-1)
        shapes = [(*values.shape[:-1], piece.slices, piece.geometry.tokens) for piece in self.pieces]
        return [(p, part.reshape(s)) for p, part, s in zip(self.pieces, parts, shapes, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        return {"pieces": [piece.to_dict() for piece in self.pieces]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Pieces:
        return cls(tuple(Piece.from_dict(piece) for piece in data["pieces"]))


AnyGeometry = Geometry | Pieces


def together(pieces: Sequence[Piece]) -> AnyGeometry:
    """The geometry of some pieces; that of one picture is its own."""
    return pieces[0].geometry if len(pieces) == 1 and not pieces[0].clip else Pieces(tuple(pieces))


def pieces_of(geometry: AnyGeometry) -> tuple[Piece, ...]:
    return geometry.pieces if isinstance(geometry, Pieces) else (Piece(geometry),)


def split(geometry: AnyGeometry, maps: Maps) -> list[Maps]:
    """Maps [..., h, w] as those of each piece."""
    return geometry.split(maps) if isinstance(geometry, Pieces) else [maps]


def sheets_of(geometry: AnyGeometry) -> tuple[Sheet, ...]:
    """The grids that a map is made of."""
    return geometry.sheets if isinstance(geometry, Pieces) else ((1, *geometry.grid),)


def joined(geometry: AnyGeometry, parts: Sequence[Tensor]) -> Tensor:
    """Maps [..., slices, h, w] of each piece as those of the geometry: the inverse of `split`."""
    return _row(parts) if isinstance(geometry, Pieces) else parts[0][..., 0, :, :]


def read_at(view: AnyGeometry, anchor: AnyGeometry, values: Tensor) -> Tensor:
    """Scores of a view's visual tokens [..., tokens] at the anchor's cells [..., h, w]."""
    if isinstance(view, Pieces) and isinstance(anchor, Pieces):
        return view.read_at(anchor, values)
    assert isinstance(view, Geometry), "a view shows what its anchor shows"
    assert isinstance(anchor, Geometry), "a view shows what its anchor shows"
    return view.read_at(anchor, values)


def covers(view: AnyGeometry, anchor: AnyGeometry) -> NDArray[np.bool_]:
    """Valid cells of the anchor that look within what a view was shown."""
    if isinstance(view, Pieces) and isinstance(anchor, Pieces):
        return view.covers(anchor)
    assert isinstance(view, Geometry), "a view shows what its anchor shows"
    assert isinstance(anchor, Geometry), "a view shows what its anchor shows"
    return view.covers(anchor)


def read_geometry(data: dict[str, Any]) -> AnyGeometry:
    """Read what `to_dict` of either wrote."""
    return Pieces.from_dict(data) if "pieces" in data else Geometry.from_dict(data)


def _row(parts: Any) -> Tensor:
    """Maps [..., slices, h, w] of several pieces as one row of cells [..., 1, cells]."""
    return torch.cat([part.flatten(-3) for part in parts], dim=-1).unsqueeze(-2)
