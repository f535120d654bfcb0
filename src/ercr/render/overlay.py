"""A heat map laid over an image, with the parts hatched that the model was not shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.errors import InputError
from ercr.image.geometry import Floats
from ercr.render.colormaps import colour
from ercr.words import Which, WordMaps

_HATCH = 8  # pixels between the hatching's lines
_GREY = 1.2  # greying of the picture as a multiple of the opacity, so that its own colours do not look like evidence
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)  # the weights of the browsers' grayscale filter
_FAINTEST = 0.25  # weaker maps are not brightened to the full range, so that very little evidence does not look strong


def brighten(heat: Floats) -> Floats:
    """A map scaled for display: its strongest cell becomes 1, unless the whole map is weak."""
    return np.asarray(np.clip(heat / max(float(heat.max(initial=0.0)), _FAINTEST), 0, 1), np.float32)


def overlay(image: Image.Image, heat: Floats, seen: NDArray[np.bool_], opacity: float, colormap: str) -> Image.Image:
    """The image greyed and dimmed, lit up where `heat` [H, W] is; parts that were not seen are hatched."""
    if not 0 <= opacity <= 1:
        raise InputError(f"opacity must lie between 0 and 1, not {opacity}.")
    pixels = np.asarray(image, np.float32)
    light = brighten(heat)[..., None]
    dimmed = _greyed(pixels, min(1.0, _GREY * opacity)) * (1 - 0.7 * opacity * (1 - light))
    weight = opacity * light
    mixed = dimmed * (1 - weight) + colour(0.3 + 0.7 * light[..., 0], colormap) * weight
    if not seen.all():
        mixed = np.where(seen[..., None], mixed, _hatched(pixels))
    return Image.fromarray(mixed.round().astype(np.uint8))


def overlay_word(
    explanation: WordMaps, which: Which = None, opacity: float = 0.7, colormap: str = "inferno"
) -> Image.Image:
    """The explained image with a word's evidence; the word is found as `WordMaps.find` does."""
    seen = explanation.geometry.seen_pixels()
    return overlay(explanation.image.rgb, explanation.heatmap(which), seen, opacity, colormap)


def _greyed(pixels: Floats, amount: float) -> Floats:
    return np.asarray(pixels + amount * ((pixels @ _LUMINANCE)[..., None] - pixels), np.float32)


def _hatched(pixels: Floats) -> Floats:
    grey = pixels.mean(-1, keepdims=True).repeat(3, axis=-1) * 0.5 + 96
    y, x = np.indices(pixels.shape[:2])
    line = ((x + y) % _HATCH == 0)[..., None]
    return np.asarray(np.where(line, 60.0, grey), np.float32)
