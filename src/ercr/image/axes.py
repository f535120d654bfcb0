"""One direction of a panel, its rows or its columns: evenly spaced cells, or cells that each have a span of their own.

Borders are exact fractions, in pixels of the original image. Where a cell looks is the middle of its span, moved by
the lean, which is counted in shares of that span.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

Span = tuple[Fraction, Fraction]  # where a cell starts and stops
_HALF = Fraction(1, 2)
_OVERLAP = Fraction(1, 10**4)  # of the smaller of two neighbours, which rounding may cause


@dataclass(frozen=True)
class Even:
    """Equal steps from start to stop."""

    start: Fraction
    stop: Fraction
    cells: int
    lean: Fraction

    def spans(self) -> tuple[Span, ...]:
        return _steps(self.start, self.stop, self.cells)

    def centres(self) -> NDArray[np.float64]:
        """Where the cells look."""
        start, stop = float(self.start), float(self.stop)
        return start + (np.arange(self.cells) + 0.5 + float(self.lean)) * (stop - start) / self.cells

    def count(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """Places counted in cells: 0 where the first one looks, 1 where the second one does."""
        start, stop = float(self.start), float(self.stop)
        return (places - start) / (stop - start) * self.cells - 0.5 - float(self.lean)

    def inside(self, limit: int) -> tuple[Fraction, ...]:
        """Share of each cell that lies in [0, limit]."""
        return _steps_inside(self.start, self.stop, self.cells, limit)

    def within(self, low: Fraction, high: Fraction) -> slice:
        """Those cells that look between low and high, and at neither."""
        step = (self.stop - self.start) / self.cells
        first = floor((low - self.start) / step - _HALF - self.lean) + 1
        last = ceil((high - self.start) / step - _HALF - self.lean)
        return slice(max(first, 0), max(last, 0))


@dataclass(frozen=True)
class Spaced:
    """Cells of any sizes, in order, possibly with gaps between them; the same questions as of `Even`."""

    borders: tuple[Span, ...]
    lean: Fraction

    def spans(self) -> tuple[Span, ...]:
        return self.borders

    @cached_property
    def looks(self) -> list[Fraction]:
        """Where the cells look, exactly."""
        return [start + (stop - start) * (_HALF + self.lean) for start, stop in self.borders]

    def centres(self) -> NDArray[np.float64]:
        return np.array([float(place) for place in self.looks])

    def count(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """As of even cells, linear between two neighbours; beyond the outermost ones, their own number."""
        return np.interp(places, self.centres(), np.arange(len(self.borders)))

    def inside(self, limit: int) -> tuple[Fraction, ...]:
        kept = ((min(max(edge, Fraction(0)), Fraction(limit)) for edge in span) for span in self.borders)
        return tuple((b - a) / (stop - start) for (a, b), (start, stop) in zip(kept, self.borders, strict=True))

    def within(self, low: Fraction, high: Fraction) -> slice:
        return slice(bisect_right(self.looks, low), bisect_left(self.looks, high))

    @property
    def in_order(self) -> bool:
        """Whether every cell has a size, none lies on another, and each looks beyond the one before it."""
        sizes = [stop - start for start, stop in self.borders]
        if min(sizes) <= 0 or (np.diff(self.centres()) <= 0).any():  # also where only floats are too coarse
            return False
        gaps = (after[0] - before[1] for before, after in pairwise(self.borders))
        return all(gap >= -_OVERLAP * min(pair) for gap, pair in zip(gaps, pairwise(sizes), strict=True))


def axis(borders: Sequence[Span], lean: Fraction) -> Even | Spaced:
    """Even if the cells are exactly so."""
    start, stop = borders[0][0], borders[-1][1]
    if tuple(borders) == _steps(start, stop, len(borders)):
        return Even(start, stop, len(borders), lean)
    return Spaced(tuple(borders), lean)


@lru_cache(maxsize=256)
def _steps(start: Fraction, stop: Fraction, cells: int) -> tuple[Span, ...]:
    step = (stop - start) / cells
    return tuple(pairwise(start + i * step for i in range(cells + 1)))


@lru_cache(maxsize=256)
def _steps_inside(start: Fraction, stop: Fraction, cells: int, limit: int) -> tuple[Fraction, ...]:
    step = (stop - start) / cells
    first, last = -start / step, (limit - start) / step  # the borders, counted in cells
    edges = [min(max(Fraction(i), first), last) for i in range(cells + 1)]
    return tuple(edge - before for before, edge in pairwise(edges))
