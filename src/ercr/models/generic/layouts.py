"""Where the cells of pictures of a size lie: asked once of the processor and of the model, and kept.

Which position of the sequence a number of the picture reaches depends on the shapes of the processor's output alone, so
the model is asked once for all sizes that give the same shapes. Where on the picture a number comes from is asked of
the processor for every size.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ercr.errors import UnsupportedModel
from ercr.image.geometry import Geometry
from ercr.models.generic.cells import Placement, place, seen
from ercr.models.generic.charts import coordinates, float_leaves
from ercr.models.generic.encoding import Encoded, Encoder
from ercr.models.generic.fallback import place_by_shape
from ercr.models.generic.owners import Owners

_MAX_SIZES = 512  # picture sizes whose layout is kept
_MAX_BYTES = 2**27  # of owners that are kept
_PURE = 0.5  # share of numbers with one owner from which the owners are the cells
_NO_PIXELS = "its processor makes no numbers from a picture's pixels"
_NO_GRADIENT = (
    "no gradient leads from pixels to its decoder's inputs (discrete codes, or features of later blocks only)"
)
_RESAMPLED = "each of its visual tokens sees the whole picture (a resampler)"


@dataclass(frozen=True)
class Layout:
    """Where the cells of a picture's size lie, and which of the image tokens they are."""

    geometry: Geometry
    tokens: frozenset[int]  # ids of the tokens at positions with cells
    order: Tensor  # [N] indices among the positions with these ids
    count: int  # of these positions


class Layouts:
    """The layouts of one model's pictures, by their width and height; several threads may ask."""

    def __init__(
        self, title: str, encoder: Encoder, image_token: int, ask: Callable[[Encoded, list[Tensor]], Owners | None]
    ) -> None:
        """`ask` finds the owners of the numbers of an encoded picture; it may refuse with a reason."""
        self._title, self._encoder, self._image_token, self._ask = title, encoder, image_token, ask
        self._found: OrderedDict[tuple[int, int], Layout | str] = OrderedDict()
        self._owners: OrderedDict[Hashable, tuple[Tensor, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, size: tuple[int, int]) -> Layout:
        """The layout of a picture's size (width, height); the reason if it has none is raised."""
        with self._lock:
            if size not in self._found:
                self._found[size] = self._layout(size)
                while len(self._found) > _MAX_SIZES:
                    self._found.popitem(last=False)
            self._found.move_to_end(size)
            found = self._found[size]
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

    def _layout(self, size: tuple[int, int]) -> Layout | str:
        """The layout, or the reason why there is none."""
        encoded = self._encoder(noise(*size))
        if not float_leaves(encoded.pixels):
            return _NO_PIXELS
        try:
            placement = self._placement(encoded, size)
        except UnsupportedModel as error:
            return str(error)
        if placement is None:
            return _RESAMPLED
        tokens = frozenset(encoded.ids[placement.order].tolist())
        places = torch.isin(encoded.ids, torch.tensor(sorted(tokens))).nonzero()[:, 0]
        return Layout(placement.geometry, tokens, torch.searchsorted(places, placement.order), len(places))

    def _placement(self, encoded: Encoded, size: tuple[int, int]) -> Placement | None:
        (width, height), key = size, _shapes(encoded)
        if key in self._owners:
            self._owners.move_to_end(key)
            return self._placed(*self._owners[key], size)
        found = self._ask(encoded, float_leaves(encoded.pixels))
        if found is None:
            raise UnsupportedModel(_NO_GRADIENT)
        if found.purity < _PURE:
            x, y = coordinates(lambda chart: self._encoder(chart).pixels, width, height)
            return place_by_shape(found, x, y, encoded.pixels, encoded.ids, self._image_token, (height, width))
        self._owners[key] = found.position.to(torch.int32), found.length
        while sum(owner.nbytes for owner, _ in self._owners.values()) > _MAX_BYTES and len(self._owners) > 1:
            self._owners.popitem(last=False)
        return self._placed(found.position, found.length, size)

    def _placed(self, position: Tensor, length: int, size: tuple[int, int]) -> Placement | None:
        width, height = size
        x, y = coordinates(lambda chart: self._encoder(chart).pixels, width, height)
        return place(seen(position.long(), x, y, length), (height, width))


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
