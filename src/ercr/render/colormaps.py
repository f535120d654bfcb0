"""Colour maps as tables of 256 RGB entries; perceptually even ones, readable without colour vision.

`inferno`, `viridis` and `cividis` follow matplotlib's maps (CC0), kept here as a few anchor colours and interpolated.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.errors import InputError, nearest

_STRONG = 0.62  # position of full evidence in a colour map on a white page; brighter colours lack contrast
_ANCHORS = {
    "inferno": (
        *("000004", "0b0724", "210c4a", "3d0965", "57106e", "71196e", "8a226a", "a32c61", "bc3754"),
        *("d24644", "e45a31", "f1731d", "f98e09", "fcac11", "f9cb35", "f2ea69", "fcffa4"),
    ),
    "viridis": (
        *("440154", "481a6c", "472f7d", "414487", "39568c", "31688e", "2a788e", "23888e", "1f988b"),
        *("22a884", "35b779", "54c568", "7ad151", "a5db36", "d2e21b", "fde725"),
    ),
    "cividis": (
        *("00224e", "002e6a", "1a386f", "32436d", "434e6c", "535a6d", "61656f", "6f7073", "7d7c78"),
        *("8c8878", "9b9476", "aba072", "bcae6c", "cdbb63", "dec958", "f0d846", "fee838"),
    ),
    "grey": ("000000", "ffffff"),
}
# for what speaks against a word: blue, which no colour map above has at its bright end
_COLD = ("000006", "04123a", "0a2a6b", "12489c", "1a66c4", "2e86e0", "4ba6f2", "72c1fa", "9bd6ff")


def names() -> list[str]:
    return list(_ANCHORS)


@lru_cache
def table(name: str) -> NDArray[np.uint8]:
    """256 RGB entries [256, 3] of a colour map."""
    if name not in _ANCHORS:
        raise InputError(f"There is no colour map {name!r}; there are {', '.join(_ANCHORS)}.{nearest(name, _ANCHORS)}")
    return _between(_ANCHORS[name])


@lru_cache
def cold() -> NDArray[np.uint8]:
    """The same for values below 0, wherever a difference is shown."""
    return _between(_COLD)


def _between(codes: tuple[str, ...]) -> NDArray[np.uint8]:
    """256 colours along some anchors."""
    anchors = np.array([[int(code[i : i + 2], 16) for i in (0, 2, 4)] for code in codes], float)
    at = np.linspace(0, len(anchors) - 1, 256)
    channels = [np.interp(at, np.arange(len(anchors)), anchors[:, c]) for c in range(3)]
    return np.stack(channels, axis=1).round().astype(np.uint8)


def tint(amount: float, name: str = "inferno") -> tuple[tuple[int, int, int], bool]:
    """The colour behind a word for an amount in 0..1, and whether it is dark enough for white letters."""
    return _with_contrast(colour(np.array(amount, np.float32), name))


def tint_on_white(amount: float, name: str = "inferno") -> tuple[tuple[int, int, int], bool]:
    """The same on a white page: white for 0."""
    strong = colour(np.array(_STRONG, np.float32), name).astype(np.float32)
    return _with_contrast(255 + (strong - 255) * min(max(amount, 0.0), 1.0))


def _with_contrast(rgb: NDArray[Any]) -> tuple[tuple[int, int, int], bool]:
    red, green, blue = (round(float(c)) for c in rgb)
    return (red, green, blue), 0.299 * red + 0.587 * green + 0.114 * blue < 128


def colour(values: NDArray[np.float32], name: str) -> NDArray[np.uint8]:
    """Values in 0..1 as RGB [..., 3]."""
    return np.asarray(table(name)[_levels(values)])


def colour_signed(values: NDArray[np.float32], sizes: NDArray[np.float32], name: str) -> NDArray[np.uint8]:
    """Sizes in 0..1 as RGB [..., 3], cold where the values are below 0."""
    at = _levels(sizes)
    return np.asarray(np.where(values[..., None] < 0, cold()[at], table(name)[at]))


def _levels(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.asarray(np.clip(values * 255 + 0.5, 0, 255), np.uint8)
