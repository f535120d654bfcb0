"""What the context residual removes: mass and bright area of a token's map before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Geometry
from ercr.metrics.several import PixelRow

BRIGHT = 0.5  # cells above this count as area


def masses(
    before: NDArray[Any], after: NDArray[Any], geometry: Geometry | PixelRow, truth: NDArray[np.bool_] | None = None
) -> dict[str, float | None]:
    """Mass, bright area and the mass inside and outside a mask of one token's maps [h, w], before and after.

    All in cells of the token grid. `truth` [H, W] says where the token's object is; without it, inside and outside
    are None.
    """
    maps = np.stack([before, after]).astype(np.float64)
    inside: Sequence[float | None] = (None, None)
    outside = inside
    if truth is not None:
        pixels = geometry.to_pixels(maps, (truth.shape[0], truth.shape[1]))
        cells = maps[0].size / truth.size  # of a pixel
        inside = [float(p[truth].sum(dtype=float) * cells) for p in pixels]
        outside = [float(p[~truth].sum(dtype=float) * cells) for p in pixels]
    values: dict[str, Sequence[float | None]] = {
        "mass": maps.sum((1, 2)).tolist(),
        "area": (maps > BRIGHT).sum((1, 2)).astype(float).tolist(),
        "inside": inside,
        "outside": outside,
    }
    return {f"{what}_{when}": values[what][i] for what in values for i, when in enumerate(("before", "after"))}
