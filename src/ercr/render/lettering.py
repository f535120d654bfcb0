"""The answer as a picture: each word on the colour of its tint, wrapped to a width."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from ercr.render.colormaps import tint_on_white

if TYPE_CHECKING:
    from ercr.words import Word, WordMaps

INK, PAPER, ACCENT, FAINT = (27, 27, 31), (255, 255, 255), (31, 95, 191), (91, 91, 102)


def sentence(
    explanation: WordMaps, width: int, size: int = 22, said: int | None = None, marked: Container[int] = ()
) -> Image.Image:
    """The first `said` words of the answer, or all; the place of the others stays empty, marked ones have a frame."""
    face, line = font(size), round(1.64 * size)
    placed: list[tuple[Word, float, int]] = []
    x, lines = 0.0, 1
    for word in explanation.words:
        length = face.getlength(word.text) + 10
        if x and x + length > width:
            x, lines = 0.0, lines + 1
        placed.append((word, x, lines - 1))
        x += length + 4
    sheet = Image.new("RGB", (width, lines * line), PAPER)
    pen = ImageDraw.Draw(sheet)
    for word, left, at in placed[:said]:
        backdrop, dark = tint_on_white(word.tint)
        box = (left, at * line + 2, left + face.getlength(word.text) + 10, (at + 1) * line - 4)
        outline = ACCENT if word.index in marked else None
        pen.rounded_rectangle(box, radius=5, fill=backdrop, outline=outline, width=3)
        pen.text((left + 5, at * line + line // 2 - 1), word.text, fill=PAPER if dark else INK, font=face, anchor="lm")
    return sheet


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
