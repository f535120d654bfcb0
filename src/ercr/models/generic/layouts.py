"""Where the cells of pictures and clips of a size lie: asked once of the processor and of the model, and kept.

Which position of the sequence a number of the picture reaches depends on the shapes of the processor's output alone, so
the model is asked once for all sizes that give the same shapes. Where on the picture a number comes from is asked of
the processor for every size.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ercr.errors import ErcrError, ImageError, InputError, UnsupportedModel
from ercr.image.clips import LoadedClip
from ercr.image.pieces import AnyGeometry
from ercr.models.generic.cells import Placement, place, seen
from ercr.models.generic.charts import coordinates, float_leaves, frame_size, readings
from ercr.models.generic.encoding import Encoded, Encoder
from ercr.models.generic.fallback import place_by_shape
from ercr.models.generic.owners import Owners
from ercr.models.generic.several import place_pieces
from ercr.models.inputs import Media, Medium, as_media

_SMALL = (320, 240)  # width and height of a small picture
_LARGE = 2**22  # numbers of a large one
_MAX_SIZES = 512  # picture sizes whose layout is kept
_MAX_BYTES = 2**27  # of owners that are kept
_PURE = 0.5  # share of numbers with one owner from which the owners are the cells
_NO_PIXELS = "its processor makes no numbers from a picture's pixels"
_NO_GRADIENT = (
    "no gradient leads from pixels to its decoder's inputs (discrete codes, or features of later blocks only)"
)
_RESAMPLED = "each of its visual tokens sees the whole picture (a resampler)"


Size = tuple[int, int]  # width, height
Kind = Size | tuple[Hashable, ...]  # the size of one picture, or what is known of several pictures and clips


@dataclass(frozen=True)
class Layout:
    """Where the cells of pictures of a kind lie, and which of the image tokens they are."""

    geometry: AnyGeometry
    tokens: frozenset[int]  # ids of the tokens at positions with cells
    order: Tensor  # [N] indices among the positions with these ids
    count: int  # of these positions


class Layouts:
    """The layouts of one model's pictures and clips, by their sizes; several threads may ask."""

    def __init__(
        self, title: str, encoder: Encoder, image_token: int, ask: Callable[[Encoded, list[Tensor]], Owners | None]
    ) -> None:
        """`ask` finds the owners of the numbers of an encoded picture; it may refuse with a reason."""
        self._title, self._encoder, self._image_token, self._ask = title, encoder, image_token, ask
        self._found: OrderedDict[Kind, Layout | str] = OrderedDict()
        self._owners: OrderedDict[Hashable, Owners] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, media: Media) -> Layout:
        """The layout of a picture's size, or of several pictures' and clips'; the reason if there is none is raised."""
        shown = as_media(media)
        alone = len(shown) == 1 and isinstance(shown[0], Image.Image)
        kind = frame_size(shown[0]) if alone else tuple(map(_kind, shown))
        with self._lock:
            if kind not in self._found:
                self._found[kind] = self._layout(shown)
                while len(self._found) > _MAX_SIZES:
                    self._found.popitem(last=False)
            self._found.move_to_end(kind)
            found = self._found[kind]
        if isinstance(found, Layout):
            return found
        raise UnsupportedModel(
            f"{self._title} has no visual tokens with a place on the picture, because {found}: "
            f"use the method 'occlusion', which needs nothing but the model's answer."
        )

    def forget(self) -> None:
        """Ask anew from now on."""
        with self._lock:
            self._found.clear()
            self._owners.clear()

    def _layout(self, media: Sequence[Medium]) -> Layout | str:
        """The layout, or the reason why there is none."""
        encoded = self._encoder([_noisy(medium) for medium in media])
        if not float_leaves(encoded.pixels):
            return _NO_PIXELS
        try:
            placement = self._placement(encoded, media)
        except UnsupportedModel as error:
            return str(error)
        if placement is None:
            return _RESAMPLED
        tokens = frozenset(encoded.ids[placement.order].tolist())
        places = torch.isin(encoded.ids, torch.tensor(sorted(tokens))).nonzero()[:, 0]
        return Layout(placement.geometry, tokens, torch.searchsorted(places, placement.order), len(places))

    def _placement(self, encoded: Encoded, media: Sequence[Medium]) -> Placement | None:
        (width, height), key = frame_size(media[0]), _shapes(encoded)
        if key in self._owners:
            self._owners.move_to_end(key)
            return self._placed(self._owners[key], media)
        if not self._owners and sum(leaf.numel() for leaf in float_leaves(encoded.pixels)) > _LARGE:
            self._learn(frame_size(media[0]))
        found = self._asked(encoded, media)
        if found is None:
            raise UnsupportedModel(_NO_GRADIENT)
        if found.purity < _PURE:
            if len(media) > 1 or not isinstance(media[0], Image.Image):
                return None
            x, y = coordinates(lambda chart: self._encoder(chart).pixels, width, height)
            return place_by_shape(found, x, y, encoded.pixels, encoded.ids, self._image_token, (height, width))
        clips = any(isinstance(medium, LoadedClip) for medium in media)
        self._owners[key] = kept = found.kept(strength=clips)
        while sum(owners.nbytes for owners in self._owners.values()) > _MAX_BYTES and len(self._owners) > 1:
            self._owners.popitem(last=False)
        return self._placed(kept, media)

    def _learn(self, size: Size) -> None:
        """Ask about a small picture first: then no block of the tower has to run for a large one."""
        if size != _SMALL:
            with suppress(ErcrError):
                small = noise(*_SMALL)
                self._placement(self._encoder([small]), [small])

    def _asked(self, encoded: Encoded, media: Sequence[Medium]) -> Owners | None:
        try:
            return self._ask(encoded, float_leaves(encoded.pixels))
        except (ErcrError, torch.OutOfMemoryError):
            raise
        # models raise many kinds of errors for pictures whose patches they cannot merge
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ImageError(f"The model does not take {_sizes(media)}: resize it ({reason}).") from error

    def _placed(self, owners: Owners, media: Sequence[Medium]) -> Placement | None:
        try:
            if len(media) == 1 and isinstance(media[0], Image.Image):
                width, height = media[0].size
                x, y = coordinates(lambda chart: self._encoder(chart).pixels, width, height)
                tokens = seen(owners.position.long(), x, y, owners.length)
                return place(tokens, (height, width), owners.resampled)
            return place_pieces(owners, readings(lambda charts: self._encoder(charts).pixels, media), media)
        except InputError as error:
            if isinstance(error, UnsupportedModel):
                raise
            # a few pixels are too few to measure a place
            raise ImageError(
                f"Where the visual tokens lie on {_sizes(media)} cannot be measured: "
                f"enlarge it, or use the method 'occlusion'."
            ) from error


def _sizes(media: Sequence[Medium]) -> str:
    sizes = ", ".join(f"{width} x {height}" for width, height in dict.fromkeys(map(frame_size, media)))
    return f"{'a picture' if len(media) == 1 else 'pictures'} of {sizes} pixels"


def _kind(medium: Medium) -> Hashable:
    if isinstance(medium, LoadedClip):
        return "clip", medium.size, medium.indices, medium.facts
    return medium.size


def _noisy(medium: Medium) -> Medium:
    width, height = frame_size(medium)
    if not isinstance(medium, LoadedClip):
        return noise(width, height)
    return replace(medium, frames=tuple(noise(width, height, seed) for seed in range(len(medium.frames))))


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8))


def _shapes(encoded: Encoded) -> Hashable:
    """All of an encoded picture that the owners depend on: not the numbers themselves."""
    return tuple(encoded.ids.tolist()), _outline(encoded.pixels)


def _outline(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        shape = (str(value.dtype), *value.shape)
        return shape if value.is_floating_point() else (shape, value.numpy().tobytes())
    if isinstance(value, dict):
        return tuple((key, _outline(value[key])) for key in sorted(value))
    return tuple(map(_outline, value)) if isinstance(value, list | tuple) else repr(value)
