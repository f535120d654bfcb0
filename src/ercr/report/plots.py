"""Plots of a report by matplotlib, which is imported only when something is drawn; no window is opened."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ercr.report.document import Plot, Series

FORMATS = ("png", "svg", "pdf")
# readable on a white and on a dark background
_COLOURS = ("#3b82d6", "#c8741f", "#2a9d6f", "#b85c9e", "#cf4d4d", "#2493a8", "#8a7a2b", "#7d7d88")
_OURS = "#cf4d4d"
_MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Paint:
    ink: str
    line: str
    back: str


_PRINT = Paint("#1b1b1f", "#dcdce4", "#ffffff")
# placeholders that `inline` replaces by the page's own colours, light or dark
_PAGE = Paint("#010203", "#040506", "none")


def available() -> bool:
    """Whether matplotlib is installed."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def files(plot: Plot) -> dict[str, bytes]:
    """The plot as PNG, SVG and PDF files on white."""
    return _save(plot, FORMATS, _PRINT)


def inline(plot: Plot) -> str:
    """The plot as SVG for a page: the page's colours, unique ids, a transparent background."""
    text = _save(plot, ("svg",), _PAGE)["svg"].decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(width|height)="[\d.]+pt"', "", text, count=2)
    text = text.replace(_PAGE.ink, "currentColor").replace(_PAGE.line, "var(--line)")
    text = re.sub(r"(font: [^;\"]*?px) [^;\"]+", r"\1 system-ui, sans-serif", text)
    # several plots share a page: ids in one must differ from those in another
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{plot.key}-", text)


def _save(plot: Plot, kinds: Sequence[str], paint: Paint) -> dict[str, bytes]:
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": plot.key,
        "pdf.fonttype": 42,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
        "font.size": 10,
        "axes.linewidth": 0.8,
        **{f"{part}.color": paint.ink for part in ("text", "xtick", "ytick")},
        "axes.labelcolor": paint.ink,
        "axes.edgecolor": paint.ink,
        "grid.color": paint.line,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=_size(plot), layout="constrained", facecolor=paint.back)
        (_draw_forest if plot.kind == "forest" else _draw_lines)(figure, plot, paint)
        saved = {}
        for kind in kinds:
            buffer = io.BytesIO()
            # without the date the same numbers give the same file
            quiet: dict[str, Any] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
            figure.savefig(buffer, format=kind, dpi=160, facecolor=paint.back, metadata=quiet)
            saved[kind] = buffer.getvalue()
    return saved


def _size(plot: Plot) -> tuple[float, float]:
    if plot.kind == "lines":
        return 6.2, 4.0
    rows = max(len(series.x) for series in plot.series)
    letters = max((len(str(name)) for series in plot.series for name in series.x), default=0)
    return 0.4 + 0.075 * letters + 2.3 * len(plot.series), 1.0 + 0.27 * rows


def _draw_forest(figure: Any, plot: Plot, paint: Paint) -> None:
    """One panel per score; a row per method: its value with interval, and the paper's as a hollow diamond."""
    panels = figure.subplots(1, len(plot.series), sharey=True, squeeze=False)[0]
    for panel, series in zip(panels, plot.series, strict=True):
        panel.set_facecolor("none")
        places = list(range(len(series.x)))
        colours = [_OURS if own else _COLOURS[0] for own in series.ours or [False] * len(places)]
        if series.low:
            panel.hlines(places, series.low, series.high, colors=colours, lw=2.2, alpha=0.55)
        panel.scatter(series.y, places, c=colours, s=32, zorder=3)
        published = [(v, place) for place, v in zip(places, series.paper, strict=False) if v is not None]
        if published:
            panel.plot(*zip(*published, strict=True), "D", mfc="none", mec=paint.ink, ms=5, mew=1, zorder=4)
        panel.set_title(series.name, fontsize=10, color=paint.ink)
        panel.set_yticks(places, [str(name) for name in series.x])
        panel.set_ylim(len(places) - 0.5, -0.5)
        panel.grid(axis="both", lw=0.6)
        panel.set_axisbelow(True)
        _clear(panel)
    known = any(value is not None for series in plot.series for value in series.paper)
    label = f"{plot.x_label}; ◇ paper" if known else plot.x_label
    figure.supxlabel(label, fontsize=10, color=paint.ink)


def _draw_lines(figure: Any, plot: Plot, paint: Paint) -> None:
    """One line per series with a band for the interval; the paper's values as hollow diamonds."""
    axes = figure.subplots()
    axes.set_facecolor("none")
    named = any(isinstance(value, str) for series in plot.series for value in series.x)
    places = _places(plot.series) if named else {}
    for index, series in enumerate(plot.series):
        own = any(series.ours)
        colour = _OURS if own else [c for c in _COLOURS if c != _OURS][index % (len(_COLOURS) - 1)]
        x = [places[value] for value in series.x] if named else list(series.x)
        marker = "" if len(x) > 8 else _MARKERS[index % len(_MARKERS)]
        axes.plot(x, series.y, color=colour, marker=marker, ms=5, lw=2.2 if own else 1.6, label=series.name, zorder=3)
        if series.low:
            axes.fill_between(x, series.low, series.high, color=colour, alpha=0.15, lw=0)
        published = [(at, v) for at, v in zip(x, series.paper, strict=False) if v is not None and math.isfinite(v)]
        if published:
            axes.plot(*zip(*published, strict=True), "D", mfc="none", mec=colour, ms=6, mew=1.2, zorder=4)
    if named:
        axes.set_xticks(list(places.values()), list(places))
    elif all(float(v).is_integer() and abs(v) < 20 for series in plot.series for v in series.x):
        axes.set_xticks(sorted({v for series in plot.series for v in series.x}))
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(lw=0.6)
    axes.set_axisbelow(True)
    _clear(axes)
    axes.legend(frameon=False, fontsize=9, ncols=1 + len(plot.series) // 7)


def _places(series: Sequence[Series]) -> dict[str, int]:
    names = dict.fromkeys(str(value) for one in series for value in one.x)
    return {name: place for place, name in enumerate(names)}


def _clear(axes: Any) -> None:
    """Remove all axis lines but the lower one, and the tick marks."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
