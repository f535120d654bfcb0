"""The explained image for a page: reduced where needed, with a record of size and format."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

from PIL import Image, features

_MAX_SIDE = 1280  # pixels; larger pictures look the same in a page and make reports large
_MAX_BYTES = 900_000  # leaves a report of a photo well under 1.5 MB after base64
_LOSSLESS_BYTES = 200_000  # drawings and screenshots stay sharp where that costs little
_QUALITIES = (85, 75, 60, 40)


@dataclass(frozen=True)
class Picture:
    """A data URL, the size it holds, and in which format."""

    url: str
    size: tuple[int, int]  # width, height
    format: str
    lossless: bool


def picture(image: Image.Image) -> Picture:
    """The image at a display size, without loss where it is small, else as WebP (JPEG without WebP support)."""
    shown = image.copy()
    shown.thumbnail((_MAX_SIDE, _MAX_SIDE), resample=Image.Resampling.LANCZOS)
    exact = _encode(shown, "PNG", optimize=True)
    if len(exact) <= _LOSSLESS_BYTES:
        return _picture(exact, shown, "PNG", lossless=True)
    format_ = "WEBP" if features.check("webp") else "JPEG"
    for quality in _QUALITIES:
        encoded = _encode(shown, format_, quality=quality)
        if len(encoded) <= _MAX_BYTES:
            break
    return _picture(encoded, shown, format_, lossless=False)


def _encode(image: Image.Image, format_: str, **options: int | bool) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=format_, **options)
    return buffer.getvalue()


def _picture(encoded: bytes, image: Image.Image, format_: str, lossless: bool) -> Picture:
    url = f"data:image/{format_.lower()};base64,{base64.b64encode(encoded).decode()}"
    return Picture(url, image.size, "WebP" if format_ == "WEBP" else format_, lossless)
