"""Text, notes and colour bar of a figure, measured before they are placed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ercr.figures.panel import Shade, colour_bar
from ercr.figures.sheet import BODY, FAINT, SMALL, Piece, Sheet, flow, line_height, write_lines

if TYPE_CHECKING:
    from ercr.words import WordMaps

Lines = list[list[tuple[float, Piece]]]
_BAR, _TICKS, _INDENT = 0.09, 0.16, 0.05  # inches: the bar, the numbers below it, and what those need at the sides
_WIDEST = 2.0  # of the bar along a foot


class Legend:
    """Text, notes and colour bar below each other, or along a foot with the bar at the right."""

    def __init__(
        self,
        text: Sequence[Piece],
        notes: Sequence[str],
        shade: Shade,
        width: float,
        *,
        stacked: bool,
        size: float = BODY,
        most: int = 12,
    ) -> None:
        self.shade, self.width, self.stacked, self.size = shade, width, stacked, size
        self.bar = width - 2 * _INDENT if stacked else min(_WIDEST, 0.4 * width)
        beside = width if stacked else width - self.bar - 0.3
        self.text = limited(text, beside, size, most)
        self.notes = [line for note in notes for line in flow([Piece(w) for w in note.split()], beside, SMALL)]
        self.label = [_joined(line) for line in flow([Piece(w) for w in shade.label.split()], self.bar, SMALL)]

    @property
    def height(self) -> float:
        return self._written + 0.07 + self._barred if self.stacked else max(self._written, self._barred)

    @property
    def _written(self) -> float:
        return len(self.text) * line_height(self.size) + len(self.notes) * line_height(SMALL)

    @property
    def _barred(self) -> float:
        return _BAR + _TICKS + len(self.label) * line_height(SMALL)

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        write_lines(sheet, left, top, self.text, self.size)
        below = top + len(self.text) * line_height(self.size)
        write_lines(sheet, left, below, self.notes, SMALL, color=FAINT)
        if self.stacked:
            place = left + _INDENT, top + self._written + 0.07
        else:
            place = left + self.width - self.bar - _INDENT, top + 0.02
        axes = sheet.axes(*place, self.bar, _BAR, "colour bar")
        colour_bar(axes, self.shade)
        axes.set_xlabel("\n".join(self.label), fontsize=SMALL, labelpad=1.5)


def limited(pieces: Sequence[Piece], width: float, size: float, most: int) -> Lines:
    """Flowed lines, cut with an ellipsis where they are more than `most`."""
    lines = flow(pieces, width, size) if pieces else []
    kept = list(pieces[: sum(len(line) for line in lines[:most])])
    while len(lines) > most and kept:
        kept.pop()
        lines = flow([*kept, Piece("…")], width, size)
    return lines


def _joined(line: Sequence[tuple[float, Piece]]) -> str:
    return " ".join(piece.text for _, piece in line)


def unseen(explanation: WordMaps) -> list[str]:
    """The note that explains hatching, if the figure has any."""
    if explanation.geometry.whole:
        return []
    return [f"Hatched: {100 * (1 - explanation.seen):.0f} % of the image, which the model was not shown."]
