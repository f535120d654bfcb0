"""A whole answer, token by token: the image, then one map per token in the order of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Literal

from ercr.figures.choice import checked, titles
from ercr.figures.legend import Legend, unseen
from ercr.figures.panel import Scale, Shade, aspect, show_image, show_map
from ercr.figures.sheet import BODY, FAINT, PAGE, SMALL, Sheet, check_width, drawing, line_height, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ercr.words import Token, WordMaps

_MARGIN, _GAP = 0.04, 0.06
_NARROWEST, _WIDEST = 0.82, 2.0  # inches of a panel
_JOINT = "·"  # where a word is cut into tokens


def token_strip(
    explanation: WordMaps,
    *,
    scale: Scale = "value",
    colormap: str = "inferno",
    width: float = PAGE,
    part: Literal["answer", "prompt"] = "answer",
) -> Figure:
    """Every token of the answer (or of the prompt) with its map and its probability."""
    check_width(width)
    (found,) = checked([explanation])
    tokens = found.tokens if part == "answer" else found.prompt_tokens
    shade = Shade(scale, colormap)
    with drawing():
        facts = [f"{titles([found])[0]} on {found.provenance.get('model')}. Prompt: “{found.prompt}”", *unseen(found)]
        legend = Legend([], facts, shade, width - 2 * _MARGIN, stacked=False)
        plan = _Plan(len(tokens) + 1, aspect(found), width)
        sheet = Sheet(width, plan.bottom + 0.06 + legend.height + _MARGIN)
        show_image(sheet.axes(*plan.place(0), "image"), found)
        for number, (token, text) in enumerate(zip(tokens, token_texts(tokens), strict=True), start=1):
            left, top, wide, tall = plan.place(number)
            show_map(sheet.axes(left, top, wide, tall, text), found, found.maps[token.row], shade)
            middle, below = left + wide / 2, top + tall + 0.8 * line_height(SMALL)
            sheet.text(middle, top - 0.05, shortened(text, wide, BODY), BODY, ha="center")
            sheet.text(middle, below, _chance(token.probability), SMALL, ha="center", color=FAINT)
        legend.draw(sheet, _MARGIN, plan.bottom + 0.06)
        return sheet.figure


def token_texts(tokens: Sequence[Token]) -> list[str]:
    """Labels of tokens: their text, with a dot where a word continues from or into another token."""
    texts = []
    for number, token in enumerate(tokens):
        after = tokens[number + 1].text if number + 1 < len(tokens) else " "
        starts = number == 0 or _begins(token.text)
        text = token.text.strip() or ("␣" if token.text else "…")  # a space, or the first bytes of a character
        texts.append(("" if starts else _JOINT) + text + ("" if _begins(after) else _JOINT))
    return texts


def _chance(probability: float) -> str:
    return f"p {probability:.2f}" if probability >= 0.005 else "p < 0.01"


def _begins(text: str) -> bool:
    """Whether a token begins a word, or is punctuation, which stands for itself."""
    return not text or text[0].isspace() or not text[0].isalnum()


class _Plan:
    """Sizes of a strip in inches: rows of equal panels, a text above and below each."""

    def __init__(self, count: int, ratio: float, width: float) -> None:
        most = max(1, int((width - 2 * _MARGIN + _GAP) / (_NARROWEST + _GAP)))
        self.columns = ceil(count / ceil(count / most))
        self.cell = min((width - 2 * _MARGIN - (self.columns - 1) * _GAP) / self.columns, _WIDEST)
        self.tall = self.cell * ratio
        self.head = line_height(BODY) + 0.03
        self.row = self.head + self.tall + line_height(SMALL) + 0.06
        self.bottom = _MARGIN + ceil(count / self.columns) * self.row - 0.06

    def place(self, number: int) -> tuple[float, float, float, float]:
        row, column = divmod(number, self.columns)
        return _MARGIN + column * (self.cell + _GAP), _MARGIN + row * self.row + self.head, self.cell, self.tall
