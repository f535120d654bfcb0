"""Where on a picture the evidence for a word is strongest: in words, such as "top left", and as a box in pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Floats, Geometry

_SIDE = 128  # pixels of the longer side at which the box is found
_LEAST = 0.5  # share of the peak from which the place belongs to the box


@dataclass(frozen=True)
class Spot:
    """The place of a word's strongest evidence."""

    name: str  # a third of the height and of the width: top left, top, top right, left, centre, …
    box: tuple[int, int, int, int]  # left, top, right, bottom, in pixels: the peak and what is half as strong around it
    picture: int = 0  # which picture or clip it lies in
    seconds: float | None = None  # of a clip

    def __str__(self) -> str:
        """As a sentence would say it."""
        parts = [self.name]
        if self.seconds is not None:
            parts.append(f"at {self.seconds:.1f} s")
        if self.picture:
            parts.append(f"picture {self.picture + 1}")
        return ", ".join(parts)


def spot(map_: Floats, geometry: Geometry, picture: int = 0, seconds: float | None = None) -> Spot | None:
    """The place of a map's peak; None where the map is empty."""
    height, width = geometry.size
    scale = min(1.0, _SIDE / max(height, width))
    small = max(1, round(height * scale)), max(1, round(width * scale))
    heat = geometry.to_pixels(map_, small)
    peak = float(heat.max(initial=0.0))
    if peak <= 0:
        return None
    at = np.unravel_index(int(heat.argmax()), heat.shape)
    region = _connected(heat >= _LEAST * peak, (int(at[0]), int(at[1])))
    rows, columns = np.flatnonzero(region.any(1)), np.flatnonzero(region.any(0))
    box = (
        round(columns[0] * width / small[1]),
        round(rows[0] * height / small[0]),
        round((columns[-1] + 1) * width / small[1]),
        round((rows[-1] + 1) * height / small[0]),
    )
    return Spot(_name((at[0] + 0.5) / small[0], (at[1] + 0.5) / small[1]), box, picture, seconds)


def _name(down: float, across: float) -> str:
    upright = ("top", "", "bottom")[min(2, int(3 * down))]
    beside = ("left", "", "right")[min(2, int(3 * across))]
    return f"{upright} {beside}".strip() or "centre"


def _connected(inside: NDArray[np.bool_], start: tuple[int, int]) -> NDArray[np.bool_]:
    """The part of a mask that hangs together with a place, side by side."""
    found = np.zeros_like(inside)
    found[start] = True
    while True:
        grown = found.copy()
        grown[1:] |= found[:-1]
        grown[:-1] |= found[1:]
        grown[:, 1:] |= found[:, :-1]
        grown[:, :-1] |= found[:, 1:]
        grown &= inside
        if np.array_equal(grown, found):
            return found
        found = grown
