"""Methods by words on one image: a column per explanation, a row per word, the image and the answer at the left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from ercr.figures.choice import Chosen, checked, choose, sentence, titles
from ercr.figures.heads import Heads
from ercr.figures.legend import Legend, unseen
from ercr.figures.panel import Scale, Shade, aspect, show_image, show_map
from ercr.figures.sheet import BODY, PAGE, Sheet, check_width, drawing, measured, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ercr.words import Which, WordMaps

_MARGIN, _GAP = 0.04, 0.05  # inches
_ABREAST = 7  # columns side by side; more go into a second band
_TALLEST = 2.2  # inches of a cell


@dataclass(frozen=True)
class Column:
    """One explanation of the grid, its name and the lines of a remark below it."""

    name: str
    explanation: WordMaps
    remark: tuple[str, ...] = ()


def methods_grid(
    explanations: Sequence[WordMaps],
    words: Sequence[Which] | None = None,
    *,
    labels: Sequence[str] | None = None,
    scale: Scale = "peak",
    colormap: str = "inferno",
    width: float = PAGE,
) -> Figure:
    """Several explanations of one answer side by side, for some of its words.

    Methods end on different levels, so by default every map is shown against its own peak, which stands in its corner.
    `scale="value"` shows values as they are.
    """
    found = checked(explanations)
    with drawing():
        columns = [Column(name, e) for name, e in zip(titles(found, labels), found, strict=True)]
        return draw_grid(columns, choose(found, words), Shade(scale, colormap), width)


def draw_grid(columns: Sequence[Column], words: Sequence[Chosen], shade: Shade, width: float) -> Figure:
    """The grid on a sheet of some width; as high as it needs to be."""
    check_width(width)
    plan = _Plan(columns, words, shade, width)
    sheet = Sheet(width, plan.height)
    for number, column in enumerate(columns):
        left, top = plan.corner(number)
        plan.heads.draw(sheet, column.name, left + plan.cell / 2, top, column.remark)
        for row, word in enumerate(words):
            place = left, top + plan.heads.height + row * plan.step, plan.cell, plan.tall
            axes = sheet.axes(*place, f"{column.name}: {word.text}")
            show_map(axes, column.explanation, word.map(column.explanation), shade)
    for band in range(plan.bands):
        for row, word in enumerate(words):
            middle = plan.band_top(band) + plan.heads.height + row * plan.step + plan.tall / 2
            text = shortened(f"“{word.text}”", plan.label, BODY)
            sheet.text(plan.labels_at, middle, text, BODY, ha="right", va="center", fontstyle="italic")
    picture = sheet.axes(_MARGIN, _MARGIN + plan.heads.height, plan.image, plan.image * plan.ratio, "image")
    show_image(picture, columns[0].explanation)
    plan.legend.draw(sheet, _MARGIN, plan.legend_top)
    return sheet.figure


class _Plan:
    """Sizes of a grid in inches."""

    def __init__(self, columns: Sequence[Column], words: Sequence[Chosen], shade: Shade, width: float) -> None:
        first, rows = columns[0].explanation, len(words)
        self.bands = ceil(len(columns) / _ABREAST)
        self.abreast = ceil(len(columns) / self.bands)
        self.ratio = aspect(first)
        self.label = min(max(measured(f"“{w.text}”", BODY, style="italic")[0] for w in words), 1.1)
        # the image is two cells wide where two rows give it the height
        share = 1 if rows * self.bands == 1 else 2
        fixed = 2 * _MARGIN + self.label + 3 * _GAP + (self.abreast + share - 2) * _GAP
        self.cell = min((width - fixed) / (self.abreast + share), _TALLEST / self.ratio)
        self.tall = self.cell * self.ratio
        self.step = self.tall + _GAP
        self.image = share * self.cell + (share - 1) * _GAP
        self.labels_at = _MARGIN + self.image + 2 * _GAP + self.label
        self.heads = Heads([c.name for c in columns], self.cell + 0.6 * _GAP, max(len(c.remark) for c in columns))
        self.band = self.heads.height + rows * self.step + 0.04
        bottom = _MARGIN + self.bands * self.band - 0.04 - _GAP
        stacked = rows * self.bands > 2  # then there is room below the image
        self.legend_top = _MARGIN + self.heads.height + self.image * self.ratio + 0.05 if stacked else bottom + 0.06
        room = self.image if stacked else width - 2 * _MARGIN
        self.legend = Legend(
            sentence(first, words), unseen(first), shade, room, stacked=stacked, most=8 if stacked else 3
        )
        self.height = max(bottom, self.legend_top + self.legend.height) + _MARGIN

    def band_top(self, band: int) -> float:
        return _MARGIN + band * self.band

    def corner(self, number: int) -> tuple[float, float]:
        """Top left of a column with its head."""
        band, place = divmod(number, self.abreast)
        return self.labels_at + _GAP + place * (self.cell + _GAP), self.band_top(band)
