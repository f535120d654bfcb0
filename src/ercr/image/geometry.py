"""Where a token's cell lies in the original image: crops, padding, tiles and merges; never reads pixel values.

Every family's preprocessing is a chain of axis-aligned resizes, crops and paddings. So one panel (a picture as the
vision tower receives it) is fully described by its token grid and the rectangle of the original image that its
canvas covers. A crop makes the rectangle smaller than the image, padding makes it larger.

The rectangle is stored in exact fractions: a border may divide a cell in halves, and rounding errors must not decide
which cells count. Where cells are not evenly spaced, the borders of every row and column are stored, too: a tower may
leave out a strip at the edge of each tile, and then the steps between cells jump there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ercr.errors import InputError
from ercr.image.axes import axis
from ercr.image.panels import STRAIGHT, Box, Exact, Lean, Panel, Spans, exact

__all__ = ["STRAIGHT", "Box", "Exact", "Geometry", "Lean", "Panel", "Spans", "interpolation", "resample"]
Floats = NDArray[np.float32]
_HALF = Fraction(1, 2)
_DECIMALS = 11  # to which positions are rounded, in cells
_MAX_ENTRIES = 2**19  # of a matrix (2 MB) that reads a view in one product


@dataclass(frozen=True)
class Geometry:
    """How one image's visual tokens lie on it.

    The first `layout[0] * layout[1]` panels are tiles of one canvas, row by row; any further panel is an overview
    (a thumbnail) of the same image, or of a part of it. All tiles have the same grid and lean; those of one row have
    the same rows, those of one column the same columns. What was shown reaches from the first tile to the last: a gap
    between two cells counts as shown, and maps are read across it.
    """

    size: tuple[int, int]  # height, width of the original image
    panels: tuple[Panel, ...]
    layout: tuple[int, int] = (1, 1)

    @property
    def tokens(self) -> int:
        """Number of visual tokens, in the model's order."""
        return sum(panel.tokens for panel in self.panels)

    @cached_property
    def canvas(self) -> Panel:
        """All tiles stitched into one panel; its grid is the grid of every map.

        It has spans if the tiles have, if they are not equally large, or if they do not touch each other.
        """
        rows, columns = self.layout
        first, last = self.panels[0], self.panels[rows * columns - 1]
        down, across = self.panels[: rows * columns : columns], self.panels[:columns]
        spans = None
        if not _seamless(down, 1) or not _seamless(across, 0):
            spans = [[span for tile in line for span in tile.axes[i].spans()] for i, line in enumerate((down, across))]
        grid = first.grid[0] * rows, first.grid[1] * columns
        return Panel(grid, (*first.edges[:2], *last.edges[2:]), first.lean, spans)

    @property
    def grid(self) -> tuple[int, int]:
        return self.canvas.grid

    @property
    def box(self) -> Box:
        return self.canvas.box

    @property
    def plain(self) -> bool:
        """Whether the grid lies evenly over exactly the image and its cells look straight ahead."""
        return self.canvas == Panel(self.grid, self._frame)

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Cells of the grid with more than half their area on the image (exactly half is not enough).

        If no cell has, those with the largest share.
        """
        upright, across = (axis.inside(limit) for axis, limit in zip(self.canvas.axes, self.size, strict=True))
        fullest = max(upright) * max(across)
        kept = {y: [y * x > _HALF or y * x == fullest for x in across] for y in set(upright)}  # few rows differ
        return np.array([kept[y] for y in upright])

    @property
    def seen(self) -> float:
        """Share of the image that the model was shown."""
        left, top, right, bottom = self._seen_box()
        height, width = self.size
        return float(max(right - left, Fraction(0)) * max(bottom - top, Fraction(0)) / (height * width))

    @property
    def whole(self) -> bool:
        """Whether the model was shown the whole image, up to less than 0.05 %."""
        return self.seen > 0.9995

    def seen_pixels(self, size: tuple[int, int] | None = None) -> NDArray[np.bool_]:
        """Pixels of the original image (or of a copy of `size`) whose centre lies in the part that the model was shown.

        The others can have no evidence.
        """
        shown = np.zeros(size or self.size, bool)
        shown[self._shows(Panel(shown.shape, self._frame))] = True
        return shown

    def stitch(self, values: Tensor) -> Tensor:
        """Scores of the visual tokens [..., tokens] as one map [..., h, w]; overviews are averaged in."""
        rows, columns = self.layout
        h, w = self.panels[0].grid
        tiles = rows * columns
        batch = values.shape[:-1]
        mosaic = values[..., : tiles * h * w].reshape(*batch, rows, columns, h, w).transpose(-3, -2)
        mosaic = mosaic.reshape(*batch, rows * h, columns * w)
        layers, start = [mosaic], tiles * h * w
        for panel in self.panels[tiles:]:
            overview = values[..., start : start + panel.tokens].reshape(*batch, *panel.grid)
            layers.append(resample(overview, panel, self.canvas))
            start += panel.tokens
        if len(layers) == 1:
            return mosaic
        if self._over is None:
            return torch.stack(layers).mean(0)
        shares = torch.from_numpy(self._over / self._over.sum(0)).to(values.device, values.dtype)
        return sum((layer * share for layer, share in zip(layers, shares, strict=True)), torch.zeros_like(mosaic))

    @cached_property
    def _over(self) -> NDArray[np.bool_] | None:
        """For the tiles and each overview, the cells of the canvas whose middle they cover; none if all cover all."""
        rows, columns = self.layout
        over = np.ones((1 + len(self.panels) - rows * columns, *self.grid), np.bool_)
        for covered, panel in zip(over[1:], self.panels[rows * columns :], strict=True):
            left, top, right, bottom = panel.edges
            down, across = (axis(cells.spans(), Fraction(0)) for cells in self.canvas.axes)
            inside = np.zeros(self.grid, np.bool_)
            inside[down.within(top, bottom), across.within(left, right)] = True
            covered &= inside
        return None if over.all() else over

    def placed(
        self, scale_x: float | Fraction, scale_y: float | Fraction, shift_x: float | Fraction, shift_y: float | Fraction
    ) -> Geometry:
        """The same tokens on the same canvas, for the picture drawn there at another scale and place.

        A point x of the picture is now seen where this geometry has scale_x * x + shift_x, and likewise y.
        """
        along_x, along_y = (exact(scale_x), exact(shift_x)), (exact(scale_y), exact(shift_y))
        if min(along_x[0], along_y[0]) <= 0:
            raise InputError("A picture can only be placed at a scale above 0.")
        return replace(self, panels=tuple(panel.seen_from(along_x, along_y) for panel in self.panels))

    def warp_to(self, anchor: Geometry, maps: Tensor) -> Tensor:
        """Bilinear reading of this view's maps [..., h, w] at the cell centres of another view's grid."""
        return resample(maps, self.canvas, anchor.canvas, _extent(self))

    def read_at(self, anchor: Geometry, values: Tensor) -> Tensor:
        """Scores of this view's visual tokens [..., tokens] at another view's cells [..., h, w]: stitch and warp."""
        rows, columns = anchor.grid
        in_place = self == anchor and len(self.panels) == 1
        if in_place or self.tokens * rows * columns > _MAX_ENTRIES:
            return self.warp_to(anchor, self.stitch(values))
        matrix = _reading(self, anchor, values.device, values.dtype)
        return (values @ matrix).view(*values.shape[:-1], rows, columns)

    def covers(self, anchor: Geometry) -> NDArray[np.bool_]:
        """Valid cells of the anchor that look (by their centre, moved by the lean) within what this view was shown."""
        shown = np.zeros(anchor.grid, bool)
        shown[self._shows(anchor.canvas)] = True
        both = anchor.valid & shown
        return both if both.any() else anchor.valid

    def to_pixels(self, maps: NDArray[Any], size: tuple[int, int] | None = None) -> Floats:
        """Maps [..., h, w] at the original image's size (or `size`); parts that the model was not shown are 0."""
        frame = Panel(size or self.size, self._frame)
        upright, across = (m.astype(np.float32) for m in interpolation(self.canvas, frame, _extent(self)))
        rows, columns = self._shows(frame)
        pixels = np.zeros((*np.shape(maps)[:-2], *frame.grid), np.float32)
        pixels[..., rows, columns] = upright[rows] @ np.asarray(maps, np.float32) @ across[columns].T
        return pixels

    @property
    def _frame(self) -> Exact:
        return Fraction(0), Fraction(0), Fraction(self.size[1]), Fraction(self.size[0])

    def _seen_box(self) -> Exact:
        (left, top, right, bottom), (_, _, width, height) = self.canvas.edges, self._frame
        return max(left, Fraction(0)), max(top, Fraction(0)), min(right, width), min(bottom, height)

    def _shows(self, panel: Panel) -> tuple[slice, slice]:
        """Rows and columns of a panel's cells that look within, not on the border of, what was shown."""
        (left, top, right, bottom), (rows, columns) = self._seen_box(), panel.axes
        return rows.within(top, bottom), columns.within(left, right)

    def to_dict(self) -> dict[str, Any]:
        return {"size": list(self.size), "layout": list(self.layout), "panels": [p.to_dict() for p in self.panels]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Geometry:
        """Read what `to_dict` wrote, also in files of earlier versions."""
        panels = tuple(Panel.from_dict(panel) for panel in data["panels"])
        return cls((data["size"][0], data["size"][1]), panels, (data["layout"][0], data["layout"][1]))


def resample(maps: Tensor, source: Panel, target: Panel, extent: tuple[int, int, int, int] | None = None) -> Tensor:
    """Bilinear, half-pixel centres (`align_corners=False`), edge values beyond the outermost centres."""
    if source == target:
        return maps
    upright, across = _interpolation_tensors(source, target, extent, maps.device, maps.dtype)
    return upright @ maps @ across.mT


@lru_cache(maxsize=32)
def _reading(source: Geometry, target: Geometry, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The matrix [tokens, cells] of stitching and warping, which are linear."""
    if len(source.panels) == 1 and source.canvas != target.canvas:
        upright, across = (torch.from_numpy(t) for t in interpolation(source.canvas, target.canvas, _extent(source)))
        return torch.einsum("yr,xc->rcyx", upright, across).reshape(source.tokens, -1).to(device, dtype)
    places = torch.eye(source.tokens, dtype=torch.float64)
    return source.warp_to(target, source.stitch(places)).flatten(1).to(device, dtype)


@lru_cache(maxsize=256)
def _interpolation_tensors(
    source: Panel,
    target: Panel,
    extent: tuple[int, int, int, int] | None,
    device: torch.device,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    upright, across = interpolation(source, target, extent)
    return torch.from_numpy(upright).to(device, dtype), torch.from_numpy(across).to(device, dtype)


@lru_cache(maxsize=256)
def interpolation(
    source: Panel, target: Panel, extent: tuple[int, int, int, int] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Matrices [target rows, source rows] and [target columns, source columns] of the bilinear reading.

    `extent` (first row, last row, first column, last column) excludes cells that hold padding only.
    """
    rows, columns = source.grid
    first_row, last_row, first_column, last_column = extent or (0, rows - 1, 0, columns - 1)
    y, x = (there.count(places) for there, places in zip(source.axes, target.centres, strict=True))
    return _linear(y, rows, first_row, last_row), _linear(x, columns, first_column, last_column)


def _linear(at: NDArray[np.float64], cells: int, first: int, last: int) -> NDArray[np.float64]:
    # where two centres coincide, a rounding error of 1e-17 would remain, and min-max would turn it into evidence
    at = np.clip(np.round(at, _DECIMALS), first, last)
    low = np.minimum(np.floor(at).astype(int), max(last - 1, first))
    high = np.minimum(low + 1, last)
    matrix = np.zeros((len(at), cells))
    rows = np.arange(len(at))
    np.add.at(matrix, (rows, low), 1.0 - (at - low))
    np.add.at(matrix, (rows, high), at - low)
    return matrix


def _seamless(line: Sequence[Panel], side: int) -> bool:
    """Whether tiles side by side (0) or one below the other (1) are one even run of cells."""
    sizes = {panel.edges[side + 2] - panel.edges[side] for panel in line}
    touching = all(before.edges[side + 2] == after.edges[side] for before, after in pairwise(line))
    return touching and len(sizes) == 1 and not any(panel.spans for panel in line)


@lru_cache(maxsize=256)
def _extent(geometry: Geometry) -> tuple[int, int, int, int]:
    rows = np.flatnonzero(geometry.valid.any(1))
    columns = np.flatnonzero(geometry.valid.any(0))
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])
