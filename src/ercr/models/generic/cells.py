"""From the pixels that each visual token owns to panels of cells; runs no model.

Tokens come in rows of cells, rows in sheets (a picture, a tile, a crop, an overview). Sheets of one scale that lie
beside each other are joined to the canvas, whose grid is the grid of maps; the others are overviews. Where cells are
evenly spaced up to the precision of the measurement, the panel is even; a real seam between tiles is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ercr.image.geometry import Geometry, Panel
from ercr.image.pieces import AnyGeometry
from ercr.models.generic.owners import Resampled

Numbers = NDArray[np.float64]
Places = NDArray[np.int64]
_SAME = 0.3  # centres that differ less, in cells, are one column (or row)
_EVEN = 0.03  # how far centres may lie beside an even spacing, in cells
_EVEN_SIZE = 0.1  # the same for the measured sizes of cells
_TOUCHING = 0.04  # gaps between cells below this, in cells, are those of the measurement
_GROWS = 1.35  # most by which measured sizes are too small
_SNAP = 0.03  # an edge this close to the picture's own, in cells, is the picture's
_OVERLAP = 0.25  # sheets that share more than this part of the smaller one are not tiles of one canvas


@dataclass(frozen=True)
class Placement:
    """Where the cells lie, and which of the sequence's visual positions belong to them, in the geometry's order."""

    geometry: AnyGeometry
    order: Tensor  # [N] positions of the sequence


@dataclass(frozen=True)
class _Line:
    """Rows, or columns, of cells: their centres and sizes."""

    at: Numbers
    size: Numbers

    @property
    def pitch(self) -> float:
        """The usual step from one to the next."""
        return float(np.median(np.diff(self.at))) if len(self.at) > 1 else float(self.size[0])

    @property
    def edges(self) -> tuple[float, float]:
        return self.at[0] - self.size[0] / 2, self.at[-1] + self.size[-1] / 2


@dataclass(frozen=True)
class _Sheet:
    """Tokens that form a grid: its rows and columns, and the position of each cell."""

    y: _Line
    x: _Line
    at: Places  # [rows, columns]

    @property
    def area(self) -> float:
        return self.y.pitch * self.x.pitch

    def shared(self, other: _Sheet) -> float:
        """The part of the smaller sheet that both cover."""
        both, one, two = 1.0, 1.0, 1.0
        for ours, theirs in ((self.x.edges, other.x.edges), (self.y.edges, other.y.edges)):
            both *= max(0.0, min(ours[1], theirs[1]) - max(ours[0], theirs[0]))
            one, two = one * (ours[1] - ours[0]), two * (theirs[1] - theirs[0])
        return both / max(min(one, two), 1e-12)


@dataclass(frozen=True)
class Seen:
    """Positions that own pixels of the picture, in the sequence's order: the middle of what each sees, and its size."""

    at: Places
    x: Numbers
    y: Numbers
    width: Numbers
    height: Numbers

    def __getitem__(self, part: slice) -> Seen:
        return Seen(self.at[part], self.x[part], self.y[part], self.width[part], self.height[part])


def pooled(owner: Tensor, x: Tensor, y: Tensor, strength: Tensor, length: int, size: tuple[int, int]) -> Seen:
    """What each position sees if it may be a mean of patches: its middle is theirs, each by its strength.

    Such cells touch each other, so their sizes are the steps between their middles.
    """
    on = (owner >= 0) & x.isfinite() & y.isfinite() & (strength > 0)
    token, weight = owner[on], strength[on]
    total = torch.bincount(token, weight, minlength=length)
    at = (total > 0).nonzero()[:, 0]
    across, down = (
        (torch.bincount(token, values[on] * weight, minlength=length)[at] / total[at]).numpy() for values in (x, y)
    )
    height, width = _pitches(across, down, size)
    return Seen(at.numpy(), across, down, np.full(len(at), width), np.full(len(at), height))


def seen(owner: Tensor, x: Tensor, y: Tensor, length: int) -> Seen:
    """What each position sees, from the pixels that it owns. An even spread of width w has a variance of w²/12."""
    on = (owner >= 0) & x.isfinite() & y.isfinite()
    token = owner[on]
    count = torch.bincount(token, minlength=length)
    at = (count > 0).nonzero()[:, 0]
    parts = []
    for values in (x[on], y[on]):
        mean = torch.bincount(token, values, minlength=length) / count.clamp(min=1)
        spread = torch.bincount(token, (values - mean[token]) ** 2, minlength=length) / count.clamp(min=1)
        parts.append((mean[at].numpy(), (12 * spread[at]).sqrt().numpy()))
    (across, width), (down, height) = parts
    return Seen(at.numpy(), across, down, width, height)


def place(tokens: Seen, size: tuple[int, int], resampled: Resampled | None = None) -> Placement | None:
    """The panels of these tokens, or None if they form no grid; `size` is the picture's height and width.

    `resampled` says of interpolated grids where their places lie between the features that were taken for them.
    """
    if len(tokens.at) < 2:
        return None
    canvas, overviews = _canvas([_moved(sheet, resampled or {}) for sheet in _sheets(tokens, size)])
    panels = tuple(_panel(sheet, size) for sheet in (canvas, *overviews))
    order = np.concatenate([sheet.at.ravel() for sheet in (canvas, *overviews)])
    return Placement(Geometry(size, panels), torch.from_numpy(order))


def _sheets(tokens: Seen, size: tuple[int, int]) -> list[_Sheet]:
    """Consecutive rows of cells with the same columns, one below the other."""
    x, y = tokens.x, tokens.y
    height, width = _pitches(x, y, size)
    starts = [0]
    breaks = (np.diff(x) < _SAME * width) | (np.abs(np.diff(y)) > 0.4 * height)
    starts += (np.flatnonzero(breaks) + 1).tolist()
    rows = [tokens[a:b] for a, b in zip(starts, [*starts[1:], len(x)], strict=True)]
    sheets: list[list[Seen]] = []
    for row in rows:
        if sheets and _follows(sheets[-1][-1], row, width):
            sheets[-1].append(row)
        else:
            sheets.append([row])
    return [_sheet(parts) for parts in sheets]


def _pitches(x: Numbers, y: Numbers, size: tuple[int, int]) -> tuple[float, float]:
    """A first guess of a cell's height and width, from steps between neighbours in the sequence."""
    across, down = np.diff(x), np.diff(y)
    forward = across[across > 1e-6 * size[1]]
    width = float(np.median(forward)) if len(forward) else float(size[1])
    turns = down[(across < -_SAME * width) & (down > 0)] if len(forward) else down[down > 0]
    return float(np.median(turns)) if len(turns) else float(size[0]), width


def _follows(above: Seen, below: Seen, width: float) -> bool:
    """Whether a row of cells continues the sheet of the row above it."""
    if len(above.x) != len(below.x) or below.y.mean() <= above.y.mean() + _SAME * float(np.median(above.height)):
        return False
    step = np.median(np.diff(above.x)) if len(above.x) > 1 else width
    return bool(np.abs(above.x - below.x).max() < _SAME * step)


def _sheet(rows: Sequence[Seen]) -> _Sheet:
    x = _Line(np.mean([row.x for row in rows], 0), np.mean([row.width for row in rows], 0))
    y = _Line(np.array([row.y.mean() for row in rows]), np.array([row.height.mean() for row in rows]))
    return _Sheet(_touching(y), _touching(x), np.stack([row.at for row in rows]))


def _moved(sheet: _Sheet, resampled: Resampled) -> _Sheet:
    """The sheet with its cells where an interpolation put them."""
    lines = resampled.get((len(sheet.y.at), len(sheet.x.at)))
    if lines is None:
        return sheet
    y, x = (_between(line, *sampled) for line, sampled in zip((sheet.y, sheet.x), lines, strict=True))
    return _Sheet(y, x, sheet.at)


def _between(line: _Line, places: Numbers, features: Places) -> _Line:
    """Cells at places between features, whose middles are known; beyond the outermost ones the steps continue."""
    if len(features) < 2:
        return line
    feature = float(np.median(np.diff(line.at) / np.diff(features)))
    at = np.interp(places, features, line.at)
    at += feature * (np.minimum(places - features[0], 0) + np.maximum(places - features[-1], 0))
    return _touching(_Line(at, line.size * np.maximum(np.gradient(places), 1)))


def _touching(line: _Line) -> _Line:
    """Sizes are a little small, as pixels are counted at their middles: cells side by side touch each other."""
    if len(line.at) == 1:
        return line
    factor = line.pitch / max(float(np.median(line.size)), 1e-9)
    return _Line(line.at, line.size * factor) if 1 <= factor < _GROWS else line


def _canvas(sheets: Sequence[_Sheet]) -> tuple[_Sheet, list[_Sheet]]:
    """The finest sheets that lie beside each other as one sheet, and the others, which show the same again."""
    finest = sorted(range(len(sheets)), key=lambda i: (round(sheets[i].area, 3), i))
    tiles: list[_Sheet] = []
    overviews: list[int] = []
    for i in finest:
        apart = all(sheets[i].shared(tile) < _OVERLAP for tile in tiles)
        if not tiles or (apart and sheets[i].area < 1.5 * tiles[0].area):
            tiles.append(sheets[i])
        else:
            overviews.append(i)
    joined = _joined(tiles) if len(tiles) > 1 else tiles[0]
    if joined is None:  # tiles that form no grid: the largest one is the canvas
        largest = max(range(len(sheets)), key=lambda i: sheets[i].at.size)
        return sheets[largest], [sheet for i, sheet in enumerate(sheets) if i != largest]
    return joined, [sheets[i] for i in sorted(overviews)]


def _joined(tiles: Sequence[_Sheet]) -> _Sheet | None:
    """Tiles as one sheet, if together they fill a grid."""
    rows, columns = _lines([tile.y for tile in tiles]), _lines([tile.x for tile in tiles])
    at = np.full((len(rows.at), len(columns.at)), -1, np.int64)
    for tile in tiles:
        cells = np.ix_(_nearest(rows, tile.y), _nearest(columns, tile.x))
        if (at[cells] >= 0).any():
            return None
        at[cells] = tile.at
    return None if (at < 0).any() else _Sheet(rows, columns, at)


def _lines(lines: Sequence[_Line]) -> _Line:
    """Rows (or columns) that several tiles share, each once."""
    pitch = float(np.median([line.pitch for line in lines]))
    at, sizes = np.concatenate([line.at for line in lines]), np.concatenate([line.size for line in lines])
    order = np.argsort(at, kind="stable")
    cuts = np.flatnonzero(np.diff(at[order]) > _SAME * pitch) + 1
    groups = np.split(order, cuts)
    return _Line(np.array([at[group].mean() for group in groups]), np.array([sizes[group].mean() for group in groups]))


def _nearest(lines: _Line, values: _Line) -> Places:
    nearest: Places = np.abs(lines.at[:, None] - values.at[None]).argmin(0)
    return nearest


def _panel(sheet: _Sheet, size: tuple[int, int]) -> Panel:
    """The sheet's cells: evenly spaced if they are, or each with a span of its own."""
    rows, columns = (_spans(line, limit) for line, limit in zip((sheet.y, sheet.x), size, strict=True))
    return Panel.spaced(rows, columns)


def _spans(line: _Line, limit: int) -> list[tuple[Fraction, Fraction]]:
    """Start and stop of every row (or column), exact where spacing is even."""
    count, step = len(line.at), line.pitch
    places = np.arange(count)
    first = float((line.at - step * places).mean())
    if count > 2:
        step, first = (float(part) for part in np.polyfit(places, line.at, 1))
    even = np.abs(first + step * places - line.at).max() < _EVEN * step
    if even and np.abs(line.size - step).max() < _EVEN_SIZE * step:
        low, high = (_snapped(edge, step, limit) for edge in (first - step / 2, first + (count - 0.5) * step))
        width = (high - low) / count
        return [(low + i * width, low + (i + 1) * width) for i in range(count)]
    return _exact_spans(*_apart(line, step), step, limit)


def _apart(line: _Line, step: float) -> tuple[Numbers, Numbers]:
    """Start and stop of each cell; cells that touch, or that the measurement puts on one another, share a border."""
    starts, stops = line.at - line.size / 2, line.at + line.size / 2
    border = np.clip((stops[:-1] + starts[1:]) / 2, line.at[:-1], line.at[1:])
    touching = starts[1:] - stops[:-1] < _TOUCHING * step
    starts[1:] = np.where(touching, border, starts[1:])
    stops[:-1] = np.where(touching, border, stops[:-1])
    return starts, stops


def _exact_spans(starts: Numbers, stops: Numbers, step: float, limit: int) -> list[tuple[Fraction, Fraction]]:
    """Starts and stops in thousandths of a pixel, each cell at least one of them wide."""
    spans: list[tuple[Fraction, Fraction]] = []
    for low, high in zip(starts, stops, strict=True):
        start = _snapped(low, step, limit)
        start = max(start, spans[-1][1]) if spans else start
        spans.append((start, max(_snapped(high, step, limit), start + Fraction(1, 1000))))
    return spans


def _snapped(edge: float, step: float, limit: int) -> Fraction:
    """An edge, or the picture's own edge if it is as close as the measurement can tell."""
    for border in (0, limit):
        if abs(edge - border) < _SNAP * step:
            return Fraction(border)
    return Fraction(round(edge * 1000), 1000)
