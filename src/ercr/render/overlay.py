"""A heat map laid over an image, and the parts of the image that the model never saw."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.errors import InputError
from ercr.geometry import Floats
from ercr.render.colormaps import colour

_HATCH = 8  # pixels between the hatching's lines


def overlay(image: Image.Image, heat: Floats, seen: NDArray[np.bool_], opacity: float, colormap: str) -> Image.Image:
    """The image tinted by `heat` [H, W]: strong evidence opaque, none left as it is; unseen parts hatched grey."""
    if not 0 <= opacity <= 1:
        raise InputError(f"opacity must lie between 0 and 1, not {opacity}.")
    pixels = np.asarray(image, np.float32)
    weight = (opacity * np.clip(heat, 0, 1) ** 0.5)[..., None]
    mixed = pixels * (1 - weight) + colour(heat, colormap) * weight
    if not seen.all():
        mixed = np.where(seen[..., None], mixed, _hatched(pixels))
    return Image.fromarray(mixed.round().astype(np.uint8))


def _hatched(pixels: Floats) -> Floats:
    grey = pixels.mean(-1, keepdims=True).repeat(3, axis=-1) * 0.5 + 96
    y, x = np.indices(pixels.shape[:2])
    line = ((x + y) % _HATCH == 0)[..., None]
    return np.asarray(np.where(line, 60.0, grey), np.float32)
