"""What the context residual removes: mass and bright area of a token's map before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Geometry

BRIGHT = 0.5  # cells above this count as area
TokenGroup = Literal["object", "function", "other"]


def masses(
    before: NDArray[Any], after: NDArray[Any], geometry: Geometry, truth: NDArray[np.bool_] | None = None
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


def token_group(kind: str, category: int | None) -> TokenGroup:
    """Object words name a category of the dataset; nouns without one count as other."""
    return "object" if category is not None else "function" if kind == "function" else "other"


def sums(row: Mapping[str, float | None], group: TokenGroup) -> dict[str, tuple[float, float]]:
    """What one token adds to Supp, Area Red., In Ret. and Out Red. of its group, for `Pooled.add`."""
    found = {
        "supp": _removed(row, "mass"),
        "area_red": _removed(row, "area"),
        "in_ret": _kept(row, "inside"),
        "out_red": _removed(row, "outside"),
    }
    return {f"{name}_{group}": pair for name, pair in found.items() if pair is not None}


def _kept(row: Mapping[str, float | None], what: str) -> tuple[float, float] | None:
    before, after = row[f"{what}_before"], row[f"{what}_after"]
    return None if before is None or after is None else (after, before)


def _removed(row: Mapping[str, float | None], what: str) -> tuple[float, float] | None:
    kept = _kept(row, what)
    return None if kept is None else (kept[1] - kept[0], kept[1])
