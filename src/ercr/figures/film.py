"""Deletion and insertion as a film: the perturbed pictures, and below them the probability of the word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from ercr.errors import InputError
from ercr.figures.choice import checked, titles
from ercr.figures.legend import Legend, unseen
from ercr.figures.panel import Shade, aspect, show_image, show_map
from ercr.figures.sheet import BODY, FAINT, PAGE, SMALL, Sheet, check_width, drawing, line_height, measured, shortened
from ercr.metrics.faithfulness import BUDGETS, baseline_image, perturbed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ercr.figures.rescore import Response

_MARGIN, _GAP, _WIDE = 0.04, 0.05, 0.14  # inches; the wide gap stands between deletion and insertion
_RIGHT = 0.1  # for half of the last tick label
_COLOURS = ("#3b6fb6", "#c8741f", "#2a8a62", "#9a4f8a", "#2493a8", "#8a7a2b", "#6d6d78")
_OURS = "#cf4d4d"
_DASHES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "--")
_PARTS = (("deleted", "Deletion"), ("inserted", "Insertion"))
_MISSING = {"mean": "Missing pixels have the image’s mean colour.", "blur": "Missing pixels are blurred."}


def faithfulness_film(
    found: Sequence[Response],
    *,
    shares: Sequence[float] = BUDGETS,
    labels: Sequence[str] | None = None,
    colormap: str = "inferno",
    width: float = PAGE,
) -> Figure:
    """A row per explanation: its map, the image without and with only its highest pixels; below, the curves."""
    if not found:
        raise InputError("Give the responses that `ercr.figures.responses` measured.")
    if len({response.word for response in found}) > 1:
        raise InputError("A film shows one word: measure the responses of one word.")
    explanations = checked([response.explanation for response in found])
    check_width(width)
    shade = Shade("peak", colormap)
    with drawing():
        names = titles(explanations, labels)
        plan = _Plan(names, len(shares), aspect(explanations[0]), width)
        notes = [_MISSING[found[0].baseline], "In brackets: the mean height of a curve.", *unseen(explanations[0])]
        legend = Legend([], notes, shade, width - 2 * _MARGIN, stacked=False)
        sheet = Sheet(width, plan.bottom + legend.height + _MARGIN)
        _heads(sheet, plan, found[0], shares)
        for row, (name, response) in enumerate(zip(names, found, strict=True)):
            _row(sheet, plan, row, name, response, shares, shade)
        for part in range(2):
            _curves(sheet, plan, part, names, found, shares)
        _whole(sheet, plan, found[0])
        legend.draw(sheet, _MARGIN, plan.bottom)
        return sheet.figure


class _Plan:
    """Sizes of a film in inches: names, the map, the frames of deletion, the frames of insertion."""

    def __init__(self, names: Sequence[str], frames: int, ratio: float, width: float) -> None:
        self.label = min(max(measured(name, BODY, "bold")[0] for name in names) + 0.06, 1.2)
        free = width - _MARGIN - _RIGHT - self.label - 2 * _WIDE - 2 * (frames - 1) * _GAP
        self.cell = min(free / (2 * frames + 1), 1.8 / ratio)
        self.tall = self.cell * ratio
        self.head = 2 * line_height() + 0.04
        self.part = frames * (self.cell + _GAP) - _GAP
        self.below = _MARGIN + self.head + len(names) * (self.tall + _GAP) + 0.1
        self.curve = min(max(0.55 * self.part, 0.9), 1.5)
        self.bottom = self.below + self.curve + 0.37
        self.map_at = _MARGIN + self.label
        self.image = min(self.label + self.cell - 0.42, self.curve / ratio)  # the space left by the tick labels

    def frame_at(self, part: int, frame: int) -> float:
        return self.map_at + self.cell + _WIDE + part * (self.part + _WIDE) + frame * (self.cell + _GAP)

    def top(self, row: int) -> float:
        return _MARGIN + self.head + row * (self.tall + _GAP)


def _heads(sheet: Sheet, plan: _Plan, response: Response, shares: Sequence[float]) -> None:
    upper, lower = _MARGIN + 0.8 * line_height(), _MARGIN + 1.85 * line_height()
    word = shortened(f"“{response.word.text}”", plan.cell + _WIDE, BODY)
    sheet.text(plan.map_at + plan.cell / 2, lower, word, BODY, ha="center", fontstyle="italic")
    for part, (_, title) in enumerate(_PARTS):
        sheet.text(plan.frame_at(part, 0) + plan.part / 2, upper, title, BODY, ha="center", fontweight="bold")
        for frame, share in enumerate(shares):
            centre = plan.frame_at(part, frame) + plan.cell / 2
            sheet.text(centre, lower, f"{100 * share:g} %", SMALL, ha="center", color=FAINT)


def _row(
    sheet: Sheet, plan: _Plan, row: int, name: str, response: Response, shares: Sequence[float], shade: Shade
) -> None:
    explanation, top = response.explanation, plan.top(row)
    label = shortened(name, plan.label, BODY, "bold")
    sheet.text(_MARGIN, top + plan.tall / 2, label, va="center", fontweight="bold")
    map_ = response.word.map(explanation)
    show_map(sheet.axes(plan.map_at, top, plan.cell, plan.tall, f"{name}: map"), explanation, map_, shade)
    picture, geometry = explanation.alone()
    image, heat = np.asarray(picture.rgb), geometry.to_pixels(map_)
    films = perturbed(image, heat, shares, baseline_image(image, response.baseline))[:2]
    for part, frames in enumerate(films):
        for frame, pixels in enumerate(frames):
            place = plan.frame_at(part, frame), top, plan.cell, plan.tall
            axes = sheet.axes(*place, f"{name}: {100 * shares[frame]:g} % {_PARTS[part][0]}")
            show_image(axes, explanation, Image.fromarray(pixels))


def _curves(
    sheet: Sheet, plan: _Plan, part: int, names: Sequence[str], found: Sequence[Response], shares: Sequence[float]
) -> None:
    key, title = _PARTS[part]
    axes = sheet.axes(plan.frame_at(part, 0), plan.below, plan.part, plan.curve, title)
    for share in shares:
        axes.axvline(100 * share, color="#dcdce4", lw=0.6, zorder=0)
    for number, (name, response) in enumerate(zip(names, found, strict=True)):
        at, height = [100 * share for share in response.shares], np.exp(getattr(response, key))
        axes.plot(at, height, label=f"{name} ({response.area(key):.2f})", **line_style(number, name))
    highest = max(max(np.exp(response.deleted + response.inserted)) for response in found)
    axes.set(xlim=(0, 100), ylim=(0, min(1.03, 1.15 * highest)))
    axes.set_xticks([0, 20, 40, 60, 80, 100])
    axes.locator_params(axis="y", nbins=4)
    axes.tick_params(length=2, width=0.5, labelsize=SMALL, pad=2, labelleft=part == 0)
    axes.set_xlabel(f"pixels {key}, %", fontsize=SMALL, labelpad=2)
    if part == 0:
        axes.set_ylabel(f"P(“{shortened(found[0].word.text, 0.8)}”)", fontsize=SMALL, labelpad=1)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    where: Literal["upper right", "lower right"] = "upper right" if part == 0 else "lower right"
    axes.legend(frameon=False, fontsize=SMALL, handlelength=2, borderaxespad=0.1, labelspacing=0.2, loc=where)


def _whole(sheet: Sheet, plan: _Plan, response: Response) -> None:
    """The unchanged image next to the plots, with the probability of the word."""
    explanation, tall = response.explanation, plan.image * aspect(response.explanation)
    show_image(sheet.axes(_MARGIN, plan.below, plan.image, tall, "image"), explanation)
    said = float(np.prod([explanation.text_tokens[row].probability for row in response.word.rows]))
    for number, line in enumerate(("image", f"P {said:.2f}")):
        baseline = plan.below + tall + (number + 0.9) * line_height(SMALL)
        sheet.text(_MARGIN + plan.image / 2, baseline, line, SMALL, ha="center", color=FAINT)


def line_style(number: int, name: str) -> dict[str, Any]:
    """ERCR in solid red; the others differ in colour and in dashes."""
    if name == "ERCR":
        return {"color": _OURS, "lw": 1.6, "zorder": 4}
    return {"color": _COLOURS[number % len(_COLOURS)], "ls": _DASHES[number % len(_DASHES)], "lw": 1.1, "zorder": 3}
