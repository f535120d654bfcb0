"""A film strip: frames of clips, or several pictures, in a row; below them a row for each word, and the times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ercr.errors import InputError
from ercr.figures.choice import Chosen, checked, choose, sentence
from ercr.figures.legend import Legend, unseen
from ercr.figures.panel import Scale, Shade, aspect, show_image, show_map
from ercr.figures.sheet import BODY, FAINT, PAGE, SMALL, Sheet, check_width, drawing, line_height, measured, shortened
from ercr.image.pieces import split
from ercr.render.overlay import FAINTEST
from ercr.render.shown import names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ercr.words import Which, WordMaps

_MARGIN, _GAP, _WIDE = 0.04, 0.05, 0.12  # inches; the wide gap stands between pieces
_TALLEST = 1.5  # inches of a panel
_MOST = 32  # frames in a row


@dataclass(frozen=True)
class _FilmShade(Shade):
    """Every word has one scale for all its frames and pictures."""

    @property
    def label(self) -> str:
        return "evidence" if self.scale == "value" else "evidence as a share of the word’s highest"


@dataclass(frozen=True)
class _Column:
    """A picture, or a slice of a clip, as an explanation of its own."""

    piece: int
    slice: int
    label: str
    alone: WordMaps


def film_strip(
    explanation: WordMaps,
    words: Sequence[Which] | None = None,
    *,
    frames: int = 8,
    scale: Scale = "peak",
    colormap: str = "inferno",
    width: float = PAGE,
) -> Figure:
    """Frames of clips (at most `frames` of each) and pictures in a row, and a row below for each word.

    The share of the word's evidence stands in the corner of each panel: of a picture, or of the part of a clip's time
    for which the frame stands. By default colours are relative to the word's highest value in all of them.
    """
    check_width(width)
    check_frames(frames)
    (found,) = checked([explanation])
    shade = _FilmShade(scale, colormap)
    with drawing():
        chosen, columns = choose([found], words), _columns(found, frames)
        left_out = sum(piece.slices for piece in found.pieces) - len(columns)
        notes = ["In the corners: the share of the word’s evidence."]
        notes += [f"{left_out} parts of the time are not shown."] if left_out else []
        legend = Legend(sentence(found, chosen), [*notes, *unseen(found)], shade, width - 2 * _MARGIN, stacked=False)
        plan = _Plan(columns, chosen, width)
        sheet = Sheet(width, plan.bottom + 0.04 + legend.height + _MARGIN)
        _draw(sheet, plan, columns, chosen, found, shade)
        legend.draw(sheet, _MARGIN, plan.bottom + 0.04)
        return sheet.figure


def check_frames(frames: int) -> None:
    """Raise unless so many frames can stand in a row."""
    if not isinstance(frames, int) or not 1 <= frames <= _MOST:
        raise InputError(f"frames must be a whole number from 1 to {_MOST}, not {frames!r}.")


def _columns(explanation: WordMaps, frames: int) -> list[_Column]:
    """Every picture, and slices of clips at even distances."""
    found = []
    for at, (piece, name) in enumerate(zip(explanation.pieces, names(explanation.image), strict=True)):
        if not piece.clip:
            found.append(_Column(at, 0, name.lower(), explanation.of_picture(at)))
            continue
        count = min(frames, piece.slices)
        for number in np.linspace(0, piece.slices - 1, count).round().astype(int).tolist():
            time = piece.times[number][0]
            found.append(_Column(at, number, f"{time:.3g} s", explanation.of_picture(at, time)))
    return found


class _Plan:
    """Sizes of a strip in inches: names of words, then panels of one height."""

    def __init__(self, columns: Sequence[_Column], words: Sequence[Chosen], width: float) -> None:
        self.label = min(max(measured(f"“{w.text}”", BODY, style="italic")[0] for w in words) + 0.06, 1.0)
        gaps = [_GAP if a.piece == b.piece else _WIDE for a, b in pairwise(columns)]
        shares = [1 / aspect(column.alone) for column in columns]
        self.tall = min((width - 2 * _MARGIN - self.label - sum(gaps)) / sum(shares), _TALLEST)
        self.wide = [self.tall * share for share in shares]
        self.left = [_MARGIN + self.label]
        for wide, gap in zip(self.wide, gaps, strict=False):
            self.left.append(self.left[-1] + wide + gap)
        self.below = _MARGIN + (1 + len(words)) * (self.tall + _GAP)
        self.bottom = self.below + line_height(SMALL)

    def place(self, row: int, column: int) -> tuple[float, float, float, float]:
        return self.left[column], _MARGIN + row * (self.tall + _GAP), self.wide[column], self.tall


def _draw(
    sheet: Sheet, plan: _Plan, columns: Sequence[_Column], words: Sequence[Chosen], found: WordMaps, shade: Shade
) -> None:
    for number, column in enumerate(columns):
        show_image(sheet.axes(*plan.place(0, number), column.label), column.alone)
        middle = plan.left[number] + plan.wide[number] / 2
        label = shortened(column.label, plan.wide[number] + _GAP, SMALL)
        sheet.text(middle, plan.below + 0.7 * line_height(SMALL), label, SMALL, ha="center", color=FAINT)
    for row, word in enumerate(words, start=1):
        middle = plan.place(row, 0)[1] + plan.tall / 2
        text = shortened(f"“{word.text}”", plan.label, BODY)
        sheet.text(plan.left[0] - 0.06, middle, text, BODY, ha="right", va="center", fontstyle="italic")
        maps = split(found.geometry, word.map(found))
        top = max(float(word.map(found).max(initial=0.0)), FAINTEST) if shade.scale == "peak" else 1.0
        shares = word.shares(found)
        for number, column in enumerate(columns):
            grid = found.pieces[column.piece].geometry.grid
            map_ = maps[column.piece].reshape(-1, *grid)[column.slice]
            axes = sheet.axes(*plan.place(row, number), f"{column.label}: {word.text}")
            corner = f"{100 * shares[column.piece][column.slice]:.0f} %"
            show_map(axes, column.alone, np.asarray(map_ / top, np.float32), Shade("value", shade.colormap), corner)
