"""The grids that a page stores maps on: those of the model, or coarser ones where a page would grow too large."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Floats, Geometry
from ercr.image.pieces import AnyGeometry, Pieces, pieces_of, split

if TYPE_CHECKING:
    from ercr.words import WordMaps


@dataclass(frozen=True)
class Grid:
    """The grid that maps are stored on: where its rows and columns look, the box, and the cells that hold evidence.

    Places are shares of the image's height and width.
    """

    grid: tuple[int, int]
    box: list[float]
    centres: list[list[float]]
    extent: list[int]


def places(explanation: WordMaps, step: int) -> dict[str, Any]:
    """What a page must know of the cells: a grid, or with several pictures and clips one for each."""
    if not isinstance(explanation.geometry, Pieces):
        return _place(explanation.geometry, step)
    pieces = [
        {
            **_place(piece.geometry, step),
            "slices": piece.slices,
            "area": float(piece.geometry.valid.sum()) / step**2,  # how many of the stored cells hold evidence
        }
        for piece in explanation.pieces
    ]
    cells = sum(piece["slices"] * piece["grid"][0] * piece["grid"][1] for piece in pieces)
    return {"grid": [1, cells], "tokens": list(explanation.geometry.grid), "pieces": pieces}


def _place(geometry: Geometry, step: int) -> dict[str, Any]:
    found = asdict(_grid(geometry, step))
    found["grid"] = list(found["grid"])
    return {
        **found,
        "tokens": list(geometry.grid),
        "seen": round(geometry.seen, 4),
        "whole": geometry.whole,
    }


def coarsened(geometry: AnyGeometry, maps: Floats, step: int) -> Floats:
    """Maps [C, h, w] on the stored grids: [C, h', w'], or of several pieces one row of cells [C, 1, cells]."""
    if not isinstance(geometry, Pieces):
        return _coarsen(maps, step)
    parts = zip(split(geometry, maps), pieces_of(geometry), strict=True)
    small = [
        _coarsen(part.reshape(-1, *piece.geometry.grid), step).reshape(len(maps), piece.slices, -1)
        if len(maps)
        else np.empty((0, piece.slices, np.prod(_grid(piece.geometry, step).grid)), np.float32)
        for part, piece in parts
    ]
    return np.concatenate([part.reshape(len(maps), part.shape[1] * part.shape[2]) for part in small], axis=1)[:, None]


def _grid(geometry: Geometry, step: int) -> Grid:
    (left, top, right, bottom), (rows, columns), (height, width) = geometry.box, geometry.grid, geometry.size
    down, across = -(-rows // step), -(-columns // step)
    right, bottom = left + (right - left) * across * step / columns, top + (bottom - top) * down * step / rows
    y, x = (np.flatnonzero(geometry.valid.any(axis)) // step for axis in (1, 0))
    box = [left / width, top / height, right / width, bottom / height]
    sides = zip(geometry.canvas.centres, geometry.size, strict=True)
    centres = [[round(float(at), 6) for at in _middles(places / side, step)] for places, side in sides]
    return Grid((down, across), [round(v, 6) for v in box], centres, [int(v) for v in (y[0], y[-1], x[0], x[-1])])


def _middles(places: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """The middles of `step` neighbouring places each; the last ones go on as if there were more."""
    pitch = places[-1] - places[-2] if len(places) > 1 else 0.0
    more = places[-1] + pitch * np.arange(1, -len(places) % step + 1)
    return np.asarray(np.concatenate([places, more]).reshape(-1, step).mean(1))


def _coarsen(maps: Floats, step: int) -> Floats:
    """Means over squares of `step` cells; the last row and column are repeated to fill their squares."""
    if step == 1 or not len(maps):
        return maps[:, ::step, ::step]
    count, rows, columns = maps.shape
    padded = np.pad(maps, ((0, 0), (0, -rows % step), (0, -columns % step)), mode="edge")
    squares = padded.reshape(count, padded.shape[1] // step, step, padded.shape[2] // step, step)
    return np.asarray(squares.mean((2, 4)), np.float32)
