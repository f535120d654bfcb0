"""A strip of pictures: the image, then one overlay per word, with the answer underneath."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from ercr.render.lettering import INK, PAPER, font, sentence
from ercr.render.overlay import overlay_word

if TYPE_CHECKING:
    from ercr.words import Word, WordMaps

_HEIGHT = 300  # of each picture
_GAP = 12


def strip(explanation: WordMaps, words: Sequence[Word]) -> Image.Image:
    """The image and the overlays of some words side by side, labelled, above the tinted answer."""
    pictures = [("", explanation.alone()[0].rgb), *((f"“{w.text}”", overlay_word(explanation, w)) for w in words)]
    scaled = [(label, _to_height(picture)) for label, picture in pictures]
    width = max(sum(p.width + _GAP for _, p in scaled) + _GAP, 480)
    answer = sentence(explanation, width - 2 * _GAP)
    sheet = Image.new("RGB", (width, _HEIGHT + 44 + answer.height + 2 * _GAP), PAPER)
    pen, x = ImageDraw.Draw(sheet), _GAP
    for label, picture in scaled:
        sheet.paste(picture, (x, _GAP))
        pen.text((x + picture.width / 2, _HEIGHT + _GAP + 20), label, fill=INK, font=font(20), anchor="mm")
        x += picture.width + _GAP
    sheet.paste(answer, (_GAP, _HEIGHT + _GAP + 40))
    return sheet


def _to_height(picture: Image.Image) -> Image.Image:
    width = max(1, round(picture.width * _HEIGHT / picture.height))
    return picture.resize((width, _HEIGHT), resample=Image.Resampling.LANCZOS)
