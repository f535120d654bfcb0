"""One picture of a figure: an image with a map over it, hatched where the model never saw it, and the colour bar.

The image is greyed and lightened, so that colour in a figure always means evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.errors import InputError, nearest
from ercr.image.geometry import Box, Floats
from ercr.render import colormaps
from ercr.render.overlay import brighten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ercr.words import WordMaps

Scale = Literal["value", "peak"]
Pixels = NDArray[np.uint8]
_DPI = 300  # of pictures, whatever the figure is saved with
_DULL, _LIGHT = 0.8, 0.35  # how far an image is turned grey, then white
_DARKEST = 0.25  # where a colour map starts: its darkest colours would look like shadows


@dataclass(frozen=True)
class Shade:
    """How maps become colours: by their values, or relative to each map's own peak."""

    scale: Scale = "value"
    colormap: str = "inferno"

    def __post_init__(self) -> None:
        if self.scale not in ("value", "peak"):
            raise InputError(f"scale must be value or peak, not {self.scale!r}.")
        _table(self.colormap)

    @property
    def label(self) -> str:
        if self.scale == "value":
            return "evidence"
        return "evidence as a share of the map’s peak, which stands in its corner"

    def light(self, heat: Floats) -> Floats:
        """A map in 0..1 as it is shown; a faint map stays faint under both scales."""
        return brighten(heat) if self.scale == "peak" else np.asarray(np.clip(heat, 0, 1), np.float32)

    def blend(self, pixels: NDArray[np.float32], light: Floats) -> Pixels:
        """Pixels [H, W, 3] under a map [H, W]: pale where there is no evidence, coloured where there is."""
        grey = pixels.mean(-1, keepdims=True)
        pale = (pixels + (grey - pixels) * _DULL) * (1 - _LIGHT) + 255 * _LIGHT
        level = np.clip((_DARKEST + (1 - _DARKEST) * light) * 255 + 0.5, 0, 255).astype(np.uint8)
        weight = np.clip(1.6 * light, 0, 1)[..., None] * 0.78
        return np.asarray((pale * (1 - weight) + _table(self.colormap)[level] * weight).round(), np.uint8)


@lru_cache
def _table(name: str) -> Pixels:
    """256 colours of one of the package's maps, or of any of matplotlib's."""
    if name in colormaps.names():
        return colormaps.table(name)
    import matplotlib

    if name not in matplotlib.colormaps:
        known = [*colormaps.names(), *matplotlib.colormaps]
        raise InputError(
            f"There is no colour map {name!r}; there are {', '.join(colormaps.names())} and matplotlib's."
            f"{nearest(name, known)}"
        )
    colours = matplotlib.colormaps[name](np.linspace(0, 1, 256))[:, :3]
    return np.asarray((colours * 255).round(), np.uint8)


def aspect(explanation: WordMaps) -> float:
    """Height over width, limited so that very long images stay visible."""
    height, width = explanation.alone()[0].size
    return min(max(height / width, 0.2), 4.0)


def show_map(axes: Axes, explanation: WordMaps, map_: Floats, shade: Shade, corner: str = "") -> None:
    """The image with a map [h, w] on the token grid over it, and perhaps a text in its corner."""
    size, (image, geometry) = _fit(axes, explanation), explanation.alone()
    pixels = np.asarray(image.rgb.resize(size, resample=Image.Resampling.LANCZOS), np.float32)
    heat = geometry.to_pixels(map_, (size[1], size[0]))
    _place(axes, explanation, shade.blend(pixels, shade.light(heat)))
    if shade.scale == "peak":
        corner = f"{float(map_.max(initial=0.0)):.2f}"
    if corner:
        _corner(axes, corner)


def show_image(axes: Axes, explanation: WordMaps, picture: Image.Image | None = None) -> None:
    """The image as it is, or a changed one of the same size."""
    shown = picture or explanation.alone()[0].rgb
    _place(axes, explanation, np.asarray(shown.resize(_fit(axes, explanation), resample=Image.Resampling.LANCZOS)))


def _fit(axes: Axes, explanation: WordMaps) -> tuple[int, int]:
    """Width and height in pixels that fill the axes; small pictures are not enlarged beyond four times."""
    assert axes.figure is not None
    box, (wide, high) = axes.get_position(), axes.figure.get_size_inches()  # type: ignore[union-attr]
    height, width = explanation.alone()[0].size
    factor = min(max(box.width * wide * _DPI / width, box.height * high * _DPI / height), 4.0)
    return max(1, round(width * factor)), max(1, round(height * factor))


def _place(axes: Axes, explanation: WordMaps, pixels: Pixels) -> None:
    height, width = explanation.alone()[0].size
    axes.imshow(pixels, extent=(0, width, height, 0), aspect="auto", interpolation="antialiased")
    axes.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(linewidth=0.4, color="#8a8a94")
    _hatch(axes, explanation)


def _hatch(axes: Axes, explanation: WordMaps) -> None:
    """Hatch the strips of the image that the model was not shown."""
    from matplotlib.patches import Rectangle

    _, geometry = explanation.alone()
    (height, width), (left, top, right, bottom) = geometry.size, geometry.box
    left, top, right, bottom = max(left, 0.0), max(top, 0.0), min(right, width), min(bottom, height)
    strips: list[Box] = [(0.0, 0.0, left, height), (right, 0.0, width, height)]
    strips += [(left, 0.0, right, top), (left, bottom, right, height)]
    for x, y, stop, end in strips:
        if stop - x > 0.5 and end - y > 0.5:
            patch = Rectangle((x, y), stop - x, end - y, facecolor=(1, 1, 1, 0.6), edgecolor="#5a5a64", lw=0)
            patch.set_hatch("//////")
            axes.add_patch(patch)


def _corner(axes: Axes, text: str) -> None:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=1.4, foreground=(0, 0, 0, 0.65))]
    style = {"fontsize": 5.5, "color": "white", "ha": "right", "va": "bottom", "path_effects": halo}
    axes.text(0.97, 0.04, text, transform=axes.transAxes, **style)  # type: ignore[arg-type]


def colour_bar(axes: Axes, shade: Shade) -> None:
    """The colour scale, drawn over grey."""
    ramp = np.linspace(0, 1, 256, dtype=np.float32)[None]
    axes.imshow(shade.blend(np.full((1, 256, 3), 150, np.float32), ramp), extent=(0, 1, 0, 1), aspect="auto")
    axes.set(xlim=(0, 1), ylim=(0, 1), yticks=[])
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(length=2, width=0.5, labelsize=6.5, pad=1.5)
    for spine in axes.spines.values():
        spine.set(linewidth=0.4)
