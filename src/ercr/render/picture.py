"""The explained image for a page: reduced where needed, with a record of size and format."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, features

_MAX_SIDE = 1280  # pixels; larger pictures look the same in a page and make reports large
_MAX_BYTES = 900_000  # leaves a report of a photo well under 1.5 MB after base64
_LOSSLESS_BYTES = 200_000  # drawings and screenshots stay sharp where that costs little
_QUALITIES = (85, 75, 60, 40)
_MIN_SIDE = 384  # of one of many pictures
_CLIP_BYTES = 1_500_000  # of all frames of all clips in a page
_JUDGED = 8  # frames of a clip that are encoded to find out how small all have to be
_LEVELS = ((320, None), (640, 80), (512, 75), (384, 70), (256, 60), (192, 50), (128, 40))  # side and quality of frames


@dataclass(frozen=True)
class Picture:
    """A data URL, the size it holds, and in which format."""

    url: str
    size: tuple[int, int]  # width, height
    format: str
    lossless: bool


def picture(image: Image.Image, count: int = 1) -> Picture:
    """The image at a display size, without loss where it is small, else as WebP (JPEG without WebP support).

    `count` is how many pictures stand side by side and share the room and the bytes.
    """
    shown, side = image.copy(), max(round(_MAX_SIDE / count**0.5), _MIN_SIDE)
    shown.thumbnail((side, side), resample=Image.Resampling.LANCZOS)
    exact = _encode(shown, "PNG", optimize=True)
    if len(exact) <= _LOSSLESS_BYTES / count:
        return _picture(exact, shown, "PNG", lossless=True)
    for quality in _QUALITIES:
        encoded = _encode(shown, _lossy(), quality=quality)
        if len(encoded) <= _MAX_BYTES / count:
            break
    return _picture(encoded, shown, _lossy(), lossless=False)


def frames(images: Sequence[Image.Image], count: int = 1) -> list[Picture]:
    """The frames of a clip, all at one size and quality, within a number of bytes that `count` clips share.

    Whether they fit is judged by some of them, so a clip may be a little larger.
    """
    some = images[:: -(-len(images) // _JUDGED)]
    room = _CLIP_BYTES / count * len(some) / len(images)
    fitting = (level for level in _LEVELS if sum(len(_frame(frame, *level)[0]) for frame in some) <= room)
    level = next(fitting, _LEVELS[-1])
    format_ = "PNG" if level[1] is None else _lossy()
    encoded = (_frame(frame, *level) for frame in images)
    return [_picture(data, small, format_, level[1] is None) for data, small in encoded]


def _frame(image: Image.Image, side: int, quality: int | None) -> tuple[bytes, Image.Image]:
    """A frame at most so large, without loss if no quality is given."""
    small = image.copy()
    small.thumbnail((side, side), resample=Image.Resampling.LANCZOS)
    if quality is None:
        return _encode(small, "PNG", optimize=True), small
    return _encode(small, _lossy(), quality=quality), small


def _lossy() -> str:
    return "WEBP" if features.check("webp") else "JPEG"


def _encode(image: Image.Image, format_: str, **options: int | bool) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=format_, **options)
    return buffer.getvalue()


def _picture(encoded: bytes, image: Image.Image, format_: str, lossless: bool) -> Picture:
    url = f"data:image/{format_.lower()};base64,{base64.b64encode(encoded).decode()}"
    return Picture(url, image.size, "WebP" if format_ == "WEBP" else format_, lossless)
