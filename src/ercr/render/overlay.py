"""A heat map laid over an image, with the parts hatched that the model was not shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.errors import InputError
from ercr.image.gallery import Gallery
from ercr.image.geometry import Floats
from ercr.image.images import LoadedImage
from ercr.image.pieces import split
from ercr.render.colormaps import colour, colour_signed
from ercr.words import Which, Word, WordMaps
from ercr.words.contrast import Contrast

_HATCH = 8  # pixels between the hatching's lines
_GAP = 12  # pixels between pictures side by side
_GREY = 1.5  # greying of the picture as a multiple of the opacity, where its own colours would look like evidence
_WARM = (240, 36)  # hues of heat, from magenta over red to yellow; 256 go round
_VIVID, _MUCH = 0.15, 0.25  # from which saturation times brightness a colour counts, and in which share of the picture
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722], np.float32)  # the weights of the browsers' grayscale filter
FAINTEST = 0.25  # weaker maps are not brightened to the full range, so that very little evidence does not look strong


def brighten(heat: Floats, peak: float | None = None) -> Floats:
    """A map scaled for display: its strongest cell (or a given peak) becomes 1, unless the whole map is weak."""
    top = float(heat.max(initial=0.0)) if peak is None else peak
    return np.asarray(np.clip(heat / max(top, FAINTEST), 0, 1), np.float32)


def is_warm(image: Image.Image) -> bool:
    """Whether so much of a picture has the colours of heat that a map over it would drown."""
    small = image.convert("RGB").resize((64, 64), resample=Image.Resampling.BOX).convert("HSV")
    hue, saturation, value = np.moveaxis(np.asarray(small, np.float32), -1, 0)
    warm = ((hue >= _WARM[0]) | (hue <= _WARM[1])) & (saturation * value >= _VIVID * 255**2)
    return bool(warm.mean() > _MUCH)


def is_any_warm(explanation: WordMaps) -> bool:
    """The same of several pictures and clips, so that all of them are shown alike."""
    return any(is_warm(item.rgb if isinstance(item, LoadedImage) else item.frames[0]) for item in explanation.media)


def overlay(
    image: Image.Image,
    heat: Floats,
    seen: NDArray[np.bool_],
    opacity: float,
    colormap: str,
    grey: bool | None = None,
    peak: float | None = None,
) -> Image.Image:
    """The image dimmed and lit up where `heat` [H, W] is; parts that were not seen are hatched.

    The image is shown in grey if `grey` is set, and by default where its own colours would drown the heat. `peak` is
    what is lit fully: the highest value of several maps that are to be compared, and by default of this one.
    """
    if not 0 <= opacity <= 1:
        raise InputError(f"opacity must lie between 0 and 1, not {opacity}.")
    light = brighten(heat, peak)
    return _blend(image, light, colour(0.3 + 0.7 * light, colormap), seen, opacity, grey)


def _blend(
    image: Image.Image,
    light: Floats,
    colours: NDArray[np.uint8],
    seen: NDArray[np.bool_],
    opacity: float,
    grey: bool | None,
) -> Image.Image:
    """Colours [H, W, 3] over the image, as strong as the light [H, W] is."""
    pixels, amount = np.asarray(image, np.float32), light[..., None]
    greyness = min(1.0, _GREY * opacity) if (is_warm(image) if grey is None else grey) else 0.0
    dimmed = _greyed(pixels, greyness) * (1 - 0.7 * opacity * (1 - amount))
    mixed = dimmed * (1 - opacity * amount) + colours * (opacity * amount)
    if not seen.all():
        mixed = np.where(seen[..., None], mixed, _hatched(pixels))
    return Image.fromarray(mixed.round().astype(np.uint8))


def overlay_word(
    explanation: WordMaps,
    which: Which = None,
    opacity: float = 0.7,
    colormap: str = "inferno",
    grey: bool | None = None,
    picture: int | None = None,
    time: float | None = None,
) -> Image.Image:
    """The explained image with a word's evidence; the word is found as `WordMaps.find` does. Weak words stay faint.

    Several pictures and clips stand side by side on one scale, unless one is named; a clip is shown at a moment, by
    default the word's strongest.
    """
    if isinstance(explanation.image, Gallery):
        looks = Looks(opacity, colormap, is_any_warm(explanation) if grey is None else grey)
        word, count = explanation.find(which), len(explanation.pieces)
        alone = picture is not None or time is not None or count == 1
        shown = [explanation.picture_index(picture)] if alone else range(count)
        return abreast([lit_piece(explanation, word, at, frame_of(explanation, word, at, time), looks) for at in shown])
    if picture is not None or time is not None:
        explanation = explanation.of_picture(picture, time)
    image, geometry = explanation.alone()
    return overlay(image.rgb, explanation.lit_heatmap(which), geometry.seen_pixels(), opacity, colormap, grey)


@dataclass(frozen=True)
class Looks:
    """How maps lie over pictures."""

    opacity: float = 0.7
    colormap: str = "inferno"
    grey: bool | None = None


def frame_of(explanation: WordMaps, word: Word, at: int, time: float | None) -> int:
    """The frame that shows a piece at a moment, by default at the word's strongest; 0 for a picture."""
    piece = explanation.pieces[at]
    if time is None:
        return piece.first_frames[word.strongest_slice(at)] if piece.clip else 0
    if not piece.clip:
        raise InputError("time= is a moment of a clip, and this is a picture: omit it.")
    return piece.frame_at(time)


def lit_piece(
    explanation: WordMaps,
    word: Word,
    at: int,
    frame: int = 0,
    looks: Looks = Looks(),  # noqa: B008 (it never changes)
    height: int | None = None,
) -> Image.Image:
    """One of several pictures, or a frame of a clip, lit on the scale that all of them share; at a height in pixels."""
    piece, item = explanation.pieces[at], explanation.media[at]
    image = item.rgb if isinstance(item, LoadedImage) else item.frames[frame]
    if height is not None:
        size = max(1, round(image.width * height / image.height)), height
        image = image.resize(size, resample=Image.Resampling.LANCZOS)
    lit = split(explanation.geometry, word.lit)[at].reshape(piece.slices, *piece.geometry.grid)
    size = image.height, image.width
    heat, seen = piece.geometry.to_pixels(lit[piece.slice_of_frame[frame]], size), piece.geometry.seen_pixels(size)
    peak = float(word.lit.max(initial=0.0))
    return overlay(image, heat, seen, looks.opacity, looks.colormap, looks.grey, peak)


def abreast(images: Sequence[Image.Image]) -> Image.Image:
    """Pictures side by side at one height, that of the highest, on white."""
    high = max(image.height for image in images)
    sizes = [(max(1, round(image.width * high / image.height)), high) for image in images]
    sheet = Image.new("RGB", (sum(width for width, _ in sizes) + _GAP * (len(images) - 1), high), "white")
    left = 0
    for image, size in zip(images, sizes, strict=True):
        sheet.paste(image if image.size == size else image.resize(size, resample=Image.Resampling.LANCZOS), (left, 0))
        left += size[0] + _GAP
    return sheet


def overlay_contrast(
    explanation: WordMaps,
    found: Contrast,
    opacity: float = 0.7,
    colormap: str = "inferno",
    grey: bool | None = None,
) -> Image.Image:
    """The explained image with what speaks for a word in warm colours, and what speaks for the other one in blue."""
    image, geometry = explanation.alone()
    heat = geometry.to_pixels(found.map)
    light = np.asarray(np.clip(np.abs(heat), 0, 1), np.float32)
    colours = colour_signed(heat, 0.3 + 0.7 * light, colormap)
    return _blend(image.rgb, light, colours, geometry.seen_pixels(), opacity, grey)


def _greyed(pixels: Floats, amount: float) -> Floats:
    return np.asarray(pixels + amount * ((pixels @ _LUMINANCE)[..., None] - pixels), np.float32)


def _hatched(pixels: Floats) -> Floats:
    grey = pixels.mean(-1, keepdims=True).repeat(3, axis=-1) * 0.5 + 96
    y, x = np.indices(pixels.shape[:2])
    line = ((x + y) % _HATCH == 0)[..., None]
    return np.asarray(np.where(line, 60.0, grey), np.float32)
