"""Pictures pasted on a canvas of one colour, and the rectangle that such a canvas covers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from PIL import Image

from ercr.image.geometry import Exact
from ercr.image.on_device import DevicePicture
from ercr.models.inputs import Picture

Colour = tuple[int, int, int]


def paste(image: Picture, canvas: tuple[int, int], content: tuple[int, int], colour: Colour, resample: int) -> Picture:
    """The image resized to `content` (height, width), centred on a canvas of one colour; the overflow is cut off."""
    scaled = image.resize((content[1], content[0]), resample=Image.Resampling(resample))
    if isinstance(scaled, DevicePicture):
        return scaled.pasted(canvas, colour)
    sheet = Image.new("RGB", (canvas[1], canvas[0]), colour)
    sheet.paste(scaled, ((canvas[1] - content[1]) // 2, (canvas[0] - content[0]) // 2))
    return sheet


def paste_box(size: tuple[int, int], canvas: tuple[int, int], content: tuple[int, int]) -> Exact:
    """The rectangle of the original image that a canvas made by `paste` covers."""
    top, left = (canvas[0] - content[0]) // 2, (canvas[1] - content[1]) // 2
    y, x = Fraction(size[0], content[0]), Fraction(size[1], content[1])  # original pixels per canvas pixel
    return (-left * x, -top * y, (canvas[1] - left) * x, (canvas[0] - top) * y)


def mean_colour(image_processor: Any) -> Colour:
    """The 8-bit colour nearest to what normalisation turns into zero."""
    red, green, blue = (round(float(channel) * 255) for channel in image_processor.image_mean)
    return red, green, blue
