"""Where a token's cell lies in the original image: crops, padding, tiles and merges; never looks at pixels' values.

Every family's preprocessing is a chain of axis-aligned resizes, crops and paddings. So one panel (a picture as the
vision tower receives it) is fully described by its token grid and the rectangle of the original image that its
canvas covers. A crop makes the rectangle smaller than the image, padding makes it larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Box = tuple[float, float, float, float]  # left, top, right, bottom, in original pixels
Floats = NDArray[np.float32]
_WHOLE = 2**19  # entries up to which a view is read by one matrix: fewer steps, at 2 MB


@dataclass(frozen=True)
class Panel:
    """One canvas of the vision tower: a token grid (rows, columns) over a rectangle of the original image."""

    grid: tuple[int, int]
    box: Box

    @property
    def tokens(self) -> int:
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class Geometry:
    """How one image's visual tokens lie on it.

    The first `layout[0] * layout[1]` panels are tiles of one canvas, row by row; any further panel is an overview
    (a thumbnail) of the same image. All tiles have the same grid.
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
        """All tiles stitched into one panel; its grid is the grid of every map."""
        rows, columns = self.layout
        first, last = self.panels[0], self.panels[rows * columns - 1]
        return Panel((first.grid[0] * rows, first.grid[1] * columns), (*first.box[:2], *last.box[2:]))

    @property
    def grid(self) -> tuple[int, int]:
        return self.canvas.grid

    @property
    def box(self) -> Box:
        return self.canvas.box

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Cells of the grid with more than half their area on the image; the fullest ones if none has."""
        (left, top, right, bottom), (rows, columns) = self.box, self.grid
        height, width = self.size
        inside = np.outer(_inside(top, bottom, rows, height), _inside(left, right, columns, width))
        return inside > 0.5 if (inside > 0.5).any() else inside >= inside.max()

    @property
    def seen(self) -> float:
        """Share of the image that the model was shown."""
        left, top, right, bottom = self._seen_box()
        height, width = self.size
        return float(max(right - left, 0.0) * max(bottom - top, 0.0) / (height * width))

    def seen_pixels(self) -> NDArray[np.bool_]:
        """Pixels of the original image whose centre the model was shown; the others can have no evidence."""
        left, top, right, bottom = self._seen_box()
        y, x = (np.arange(n) + 0.5 for n in self.size)
        return np.outer((y > top) & (y < bottom), (x > left) & (x < right))

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
        return mosaic if len(layers) == 1 else torch.stack(layers).mean(0)

    def warp_to(self, anchor: Geometry, maps: Tensor) -> Tensor:
        """Bilinear reading of this view's maps [..., h, w] at the cell centres of another view's grid."""
        return resample(maps, self.canvas, anchor.canvas, _extent(self))

    def read_at(self, anchor: Geometry, values: Tensor) -> Tensor:
        """Scores of this view's visual tokens [..., tokens] at another view's cells [..., h, w]: stitch and warp."""
        rows, columns = anchor.grid
        in_place = self == anchor and len(self.panels) == 1
        if in_place or self.tokens * rows * columns > _WHOLE:
            return self.warp_to(anchor, self.stitch(values))
        matrix = _reading(self, anchor, values.device, values.dtype)
        return (values @ matrix).view(*values.shape[:-1], rows, columns)

    def covers(self, anchor: Geometry) -> NDArray[np.bool_]:
        """Valid cells of the anchor whose centre this view was shown."""
        left, top, right, bottom = self._seen_box()
        x, y = _centres(anchor.canvas)
        shown = np.outer((y >= top) & (y <= bottom), (x >= left) & (x <= right))
        return anchor.valid & shown if (anchor.valid & shown).any() else anchor.valid

    def to_pixels(self, maps: NDArray[Any], size: tuple[int, int] | None = None) -> Floats:
        """Maps [..., h, w] at the original image's size (or `size`); what the model never saw is 0."""
        height, width = size or self.size
        frame = Panel((height, width), (0.0, 0.0, float(self.size[1]), float(self.size[0])))
        upright, across = interpolation(self.canvas, frame, _extent(self))
        pixels = upright.astype(np.float32) @ np.asarray(maps, np.float32) @ across.T.astype(np.float32)
        left, top, right, bottom = self._seen_box()
        x, y = _centres(frame)
        pixels[..., (y < top) | (y > bottom), :] = 0.0
        pixels[..., (x < left) | (x > right)] = 0.0
        return np.asarray(pixels, np.float32)

    def _seen_box(self) -> Box:
        left, top, right, bottom = self.box
        return max(left, 0.0), max(top, 0.0), min(right, self.size[1]), min(bottom, self.size[0])

    def to_dict(self) -> dict[str, Any]:
        panels = [{"grid": list(p.grid), "box": list(p.box)} for p in self.panels]
        return {"size": list(self.size), "layout": list(self.layout), "panels": panels}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Geometry:
        panels = tuple(Panel((p["grid"][0], p["grid"][1]), tuple(p["box"])) for p in data["panels"])
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

    `extent` (first row, last row, first column, last column) keeps the reading off cells that hold padding only.
    """
    rows, columns = source.grid
    first_row, last_row, first_column, last_column = extent or (0, rows - 1, 0, columns - 1)
    (x, y), (left, top, right, bottom) = _centres(target), source.box
    upright = _linear((y - top) / (bottom - top) * rows - 0.5, rows, first_row, last_row)
    across = _linear((x - left) / (right - left) * columns - 0.5, columns, first_column, last_column)
    return upright, across


def _linear(at: NDArray[np.float64], cells: int, first: int, last: int) -> NDArray[np.float64]:
    at = np.clip(at, first, last)
    low = np.minimum(np.floor(at).astype(int), max(last - 1, first))
    high = np.minimum(low + 1, last)
    matrix = np.zeros((len(at), cells))
    rows = np.arange(len(at))
    np.add.at(matrix, (rows, low), 1.0 - (at - low))
    np.add.at(matrix, (rows, high), at - low)
    return matrix


def _centres(panel: Panel) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """x of the column centres and y of the row centres, in original pixels."""
    (left, top, right, bottom), (rows, columns) = panel.box, panel.grid
    x = left + (np.arange(columns) + 0.5) * (right - left) / columns
    y = top + (np.arange(rows) + 0.5) * (bottom - top) / rows
    return x, y


def _inside(start: float, stop: float, cells: int, limit: int) -> NDArray[np.float64]:
    """Share of each of `cells` equal steps from start to stop that lies in [0, limit]."""
    edges = np.linspace(start, stop, cells + 1)
    clipped = np.clip(edges, 0.0, limit)
    share: NDArray[np.float64] = np.diff(clipped) / np.diff(edges)
    return share


@lru_cache(maxsize=256)
def _extent(geometry: Geometry) -> tuple[int, int, int, int]:
    rows = np.flatnonzero(geometry.valid.any(1))
    columns = np.flatnonzero(geometry.valid.any(0))
    return int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])
