"""Maps over a picture, at a display size that does not depend on the size of the picture."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image, features

from ercr.explanation import Explanation
from ercr.image.gallery import Gallery
from ercr.image.geometry import Floats, Geometry
from ercr.image.images import LoadedImage
from ercr.render.overlay import abreast, overlay


def shrink_to_side(image: Image.Image, side: int) -> Image.Image:
    """The picture with its longer side at most `side` pixels long."""
    scale = min(1.0, side / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, resample=Image.Resampling.BICUBIC, reducing_gap=2.0)


def draw_map(shown: Image.Image, geometry: Geometry, evidence: Floats) -> Image.Image:
    """A shrink_to_side picture with a map [h, w] laid over it."""
    size = (shown.height, shown.width)
    heat = geometry.to_pixels(evidence, size)
    seen = np.ones(size, np.bool_) if geometry.whole else geometry.seen_pixels(size)
    return overlay(shown, heat, seen, 0.7, "inferno")


def answer_picture(explanation: Explanation, side: int) -> Image.Image:
    """The evidence for the whole answer; the bare picture where nothing was said."""
    if isinstance(explanation.image, Gallery):
        return shrink_to_side(explanation.overlay() if explanation.words else _plain(explanation.image), side)
    image, geometry = explanation.alone()
    shown = shrink_to_side(image.rgb, side)
    return draw_map(shown, geometry, explanation.sentence().lit) if explanation.words else shown


def _plain(gallery: Gallery) -> Image.Image:
    return abreast([item.rgb if isinstance(item, LoadedImage) else item.frames[0] for item in gallery.items])


def data_url(image: Image.Image) -> str:
    """A small picture as a data URL."""
    kind = "WEBP" if features.check("webp") else "JPEG"
    buffer = io.BytesIO()
    image.save(buffer, format=kind, quality=75)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
