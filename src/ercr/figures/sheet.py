"""A figure laid out in inches from its top left corner; it knows nothing of explanations.

Axes and texts have explicit positions: so a figure has exactly the requested width, and nothing is clipped, because
every text is measured first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ercr.errors import InputError, missing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.5, 7.16  # inches: one and two columns of a journal's page
BODY, SMALL, TINY = 8.0, 6.5, 5.5  # points
INK, FAINT = "#1b1b1f", "#6b6b76"
# for words in scripts that matplotlib's own font lacks; fonts that are not installed are skipped
_FALLBACKS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "WenQuanYi Micro Hei", "Arial Unicode MS", "Symbola")


@contextmanager
def drawing() -> Iterator[None]:
    """Settings under which figures are drawn and saved; the caller's own font family is kept."""
    try:
        import matplotlib
    except ImportError:
        raise missing("Figures need matplotlib", "evaluate") from None

    settings: Any = {
        "text.usetex": False,
        "text.parse_math": False,  # a dollar sign in a word is a dollar sign
        "font.size": BODY,
        "font.family": _families(),
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "axes.linewidth": 0.6,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.linewidth": 0.4,
        "pdf.fonttype": 42,  # whole fonts, which journals ask for
        "ps.fonttype": 42,
        "svg.fonttype": "path",
    }
    with matplotlib.rc_context(settings):
        yield


def _families() -> list[str]:
    import matplotlib

    own = matplotlib.rcParams["font.family"]
    return [*([own] if isinstance(own, str) else own), *_installed()]


@lru_cache
def _installed() -> tuple[str, ...]:
    from matplotlib import font_manager

    known = set(font_manager.get_font_names())
    return tuple(name for name in _FALLBACKS if name in known)


def check_width(width: float) -> None:
    """Raise for widths that are too small for pictures or larger than any page."""
    if not 2 <= width <= 40:
        raise InputError(f"width must be 2 to 40 inches, not {width:g}.")


class Sheet:
    """A figure of a known size in inches."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.width, self.height = width, height
        self.figure: Figure = Figure(figsize=(width, height), facecolor="white")
        FigureCanvasAgg(self.figure)

    def axes(self, left: float, top: float, width: float, height: float, label: str = "") -> Axes:
        place = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(place, label=label)

    def text(self, left: float, top: float, text: str, size: float = BODY, **style: Any) -> None:
        """Text whose anchor (its left baseline unless `ha` and `va` say otherwise) lies at a place."""
        self.figure.text(left / self.width, 1 - top / self.height, plain(text), fontsize=size, **style)


def plain(text: str) -> str:
    """Text on one line without control characters, which fonts draw as boxes."""
    return "".join(c if c.isprintable() else " " for c in text).strip()


@lru_cache(maxsize=4096)
def measured(text: str, size: float = BODY, weight: str = "normal", style: str = "normal") -> tuple[float, float]:
    """Width and height of a text in inches, under the settings of `drawing`."""
    sheet = _scratch()
    drawn = sheet.figure.text(0, 0, plain(text), fontsize=size, fontweight=weight, fontstyle=style)
    box = drawn.get_window_extent()
    drawn.remove()
    return float(box.width) / sheet.figure.dpi, float(box.height) / sheet.figure.dpi


@lru_cache(maxsize=1)
def _scratch() -> Sheet:
    sheet = Sheet(1, 1)
    sheet.figure.set_dpi(600)
    return sheet


def shortened(text: str, width: float, size: float = BODY, weight: str = "normal") -> str:
    """The text, cut with an ellipsis where it is wider than some inches."""
    text = plain(text)
    while len(text) > 1 and measured(text, size, weight)[0] > width:
        text = text[:-2].rstrip() + "…"
    return text


@dataclass(frozen=True)
class Piece:
    """A word of running text, perhaps bold; a `glued` one follows without a space."""

    text: str
    bold: bool = False
    glued: bool = False


def flow(pieces: Sequence[Piece], width: float, size: float = BODY) -> list[list[tuple[float, Piece]]]:
    """Lines of pieces with their places from the left, in inches, none wider than `width`."""
    lines: list[list[tuple[float, Piece]]] = [[]]
    space, at = measured("a a", size)[0] - measured("aa", size)[0], 0.0
    for piece in pieces:
        weight = "bold" if piece.bold else "normal"
        piece = replace(piece, text=shortened(piece.text, width, size, weight))
        wide = measured(piece.text, size, weight)[0]
        start = at + (0.0 if piece.glued or not lines[-1] else space)
        if lines[-1] and start + wide > width:
            lines.append([])
            start = 0.0
        lines[-1].append((start, piece))
        at = start + wide
    return lines


def line_height(size: float = BODY) -> float:
    return 1.35 * size / 72


def write_lines(
    sheet: Sheet,
    left: float,
    top: float,
    lines: Sequence[Sequence[tuple[float, Piece]]],
    size: float = BODY,
    **style: Any,
) -> None:
    """Flowed lines from a top left corner on."""
    for number, line in enumerate(lines):
        baseline = top + (number + 0.8) * line_height(size)
        for at, piece in line:
            sheet.text(left + at, baseline, piece.text, size, fontweight="bold" if piece.bold else "normal", **style)
