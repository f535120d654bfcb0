"""One canvas of a vision tower: its token grid and the rectangle of the original image that it covers, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.errors import InputError
from ercr.image.axes import Even, Spaced, Span, axis

Box = tuple[float, float, float, float]  # left, top, right, bottom, in original pixels
Exact = tuple[Fraction, Fraction, Fraction, Fraction]  # the same, as fractions
Lean = tuple[Fraction, Fraction]  # down, right, in cells
Spans = tuple[tuple[Span, ...], tuple[Span, ...]]  # of the rows, of the columns
Place = tuple[Fraction, Fraction]  # scale and shift along one axis
Borders = Sequence[Sequence[float | Fraction]]  # start and stop of cells, from the first one
STRAIGHT = (Fraction(0), Fraction(0))
_MAX_DENOMINATOR = 10**5  # of the fraction that a float stands for; real denominators count canvas pixels


@dataclass(frozen=True, init=False)
class Panel:
    """One canvas of the vision tower: a token grid (rows, columns) over a rectangle of the original image.

    The rectangle may be given in fractions or in floats; a float is replaced by the nearest simple fraction.
    A tower may look beside the middle of its cells: `lean` says how far, in cells, down and to the right. Cells are
    evenly spaced unless `spans` holds start and stop of each row and each column; gaps between them belong to no cell.
    Spans that are even after all are dropped, so such a panel equals the one without.
    """

    grid: tuple[int, int]
    box: Box
    lean: Lean
    edges: Exact = field(repr=False, hash=False)  # the box, exactly
    spans: Spans | None = field(default=None, repr=False, hash=False)

    def __init__(
        self,
        grid: tuple[int, int],
        box: Sequence[float | Fraction],
        lean: Lean = STRAIGHT,
        spans: Sequence[Borders] | None = None,
    ) -> None:
        left, top, right, bottom = (exact(edge) for edge in box)
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "box", (float(left), float(top), float(right), float(bottom)))
        object.__setattr__(self, "lean", lean)
        object.__setattr__(self, "edges", (left, top, right, bottom))
        object.__setattr__(self, "spans", None if spans is None else self._irregular(spans))

    @classmethod
    def spaced(cls, rows: Borders, columns: Borders, lean: Lean = STRAIGHT) -> Panel:
        """The panel of these rows and columns, each with its start and stop in original pixels."""
        if not len(rows) or not len(columns):
            raise InputError("A panel needs at least one row and one column.")
        box = columns[0][0], rows[0][0], columns[-1][1], rows[-1][1]
        return cls((len(rows), len(columns)), box, lean, (rows, columns))

    def _irregular(self, spans: Sequence[Borders]) -> Spans | None:
        """The spans in fractions; none if they are even."""
        rows, columns = (tuple((exact(start), exact(stop)) for start, stop in cells) for cells in spans)
        if not rows or not columns or (len(rows), len(columns)) != self.grid:
            raise InputError("A panel needs one span for each row and each column of its grid.")
        if (columns[0][0], rows[0][0], columns[-1][1], rows[-1][1]) != self.edges:
            raise InputError("The spans of a panel's rows and columns must start and stop where its box does.")
        if not all(Spaced(cells, lean).in_order for cells, lean in zip((rows, columns), self.lean, strict=True)):
            raise InputError("The rows and columns of a panel must be in order, and none may lie on another.")
        even = all(isinstance(axis(cells, Fraction(0)), Even) for cells in (rows, columns))
        return None if even else (rows, columns)

    @cached_property
    def axes(self) -> tuple[Even | Spaced, Even | Spaced]:
        """Its rows and its columns."""
        (left, top, right, bottom), (rows, columns), (down, aside) = self.edges, self.grid, self.lean
        if self.spans is None:
            return Even(top, bottom, rows, down), Even(left, right, columns, aside)
        return axis(self.spans[0], down), axis(self.spans[1], aside)

    @property
    def centres(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """y where the rows look and x where the columns look, in original pixels."""
        rows, columns = self.axes
        return rows.centres(), columns.centres()

    def seen_from(self, along_x: Place, along_y: Place) -> Panel:
        """The panel for a picture that is drawn at another scale and place."""

        def undo(edge: Fraction, place: Place) -> Fraction:
            scale, shift = place
            return (edge - shift) / scale

        box = [undo(edge, place) for edge, place in zip(self.edges, (along_x, along_y) * 2, strict=True)]
        spans = self.spans and [
            [(undo(start, place), undo(stop, place)) for start, stop in cells]
            for cells, place in zip(self.spans, (along_y, along_x), strict=True)
        ]
        return Panel(self.grid, box, self.lean, spans)

    @property
    def tokens(self) -> int:
        return self.grid[0] * self.grid[1]

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "grid": list(self.grid),
            "box": list(self.box),
            "exact": [str(e) for e in self.edges],
            "lean": [str(e) for e in self.lean],
        }
        if self.spans:
            data["spans"] = [[[str(start), str(stop)] for start, stop in cells] for cells in self.spans]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Panel:
        """Read what `to_dict` wrote; files of earlier versions hold the box as floats only, and no lean."""
        box = [Fraction(e) for e in data["exact"]] if "exact" in data else data["box"]
        down, right = data.get("lean", STRAIGHT)
        spans = [[(Fraction(a), Fraction(b)) for a, b in cells] for cells in data["spans"]] if "spans" in data else None
        return cls((data["grid"][0], data["grid"][1]), box, (Fraction(down), Fraction(right)), spans)


def exact(number: float | Fraction) -> Fraction:
    return number if isinstance(number, Fraction) else Fraction(number).limit_denominator(_MAX_DENOMINATOR)
