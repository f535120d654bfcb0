"""A strip of pictures: the image, then one overlay per word, with the answer underneath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from ercr.render.colormaps import tint_on_white
from ercr.render.overlay import overlay_word

if TYPE_CHECKING:
    from ercr.words import Word, WordMaps

_HEIGHT = 300  # of each picture
_GAP = 12
_INK, _PAPER = (27, 27, 31), (255, 255, 255)


def strip(explanation: WordMaps, words: Sequence[Word]) -> Image.Image:
    """The image and the overlays of some words side by side, labelled, above the tinted answer."""
    pictures = [("", explanation.alone()[0].rgb), *((f"“{w.text}”", overlay_word(explanation, w)) for w in words)]
    scaled = [(label, _to_height(picture)) for label, picture in pictures]
    width = max(sum(p.width + _GAP for _, p in scaled) + _GAP, 480)
    sentence = _sentence(explanation, width - 2 * _GAP)
    sheet = Image.new("RGB", (width, _HEIGHT + 44 + sentence.height + 2 * _GAP), _PAPER)
    pen, x = ImageDraw.Draw(sheet), _GAP
    for label, picture in scaled:
        sheet.paste(picture, (x, _GAP))
        pen.text((x + picture.width / 2, _HEIGHT + _GAP + 20), label, fill=_INK, font=_font(20), anchor="mm")
        x += picture.width + _GAP
    sheet.paste(sentence, (_GAP, _HEIGHT + _GAP + 40))
    return sheet


def _to_height(picture: Image.Image) -> Image.Image:
    width = max(1, round(picture.width * _HEIGHT / picture.height))
    return picture.resize((width, _HEIGHT), resample=Image.Resampling.LANCZOS)


def _sentence(explanation: WordMaps, width: int) -> Image.Image:
    """The answer, each word on the colour of its tint, wrapped to a width."""
    font, lines = _font(22), 1
    placed: list[tuple[Word, float, int]] = []
    x = 0.0
    for word in explanation.words:
        length = font.getlength(word.text) + 10
        if x and x + length > width:
            x, lines = 0.0, lines + 1
        placed.append((word, x, lines - 1))
        x += length + 4
    sheet = Image.new("RGB", (width, lines * 36), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for word, left, line in placed:
        backdrop, dark = tint_on_white(word.tint)
        box = (left, line * 36 + 2, left + font.getlength(word.text) + 10, line * 36 + 32)
        pen.rounded_rectangle(box, radius=5, fill=backdrop)
        ink = (255, 255, 255) if dark else (0, 0, 0)
        pen.text((left + 5, line * 36 + 17), word.text, fill=ink, font=font, anchor="lm")
    return sheet


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
