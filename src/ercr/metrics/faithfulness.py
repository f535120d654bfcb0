"""Deletion and insertion: does the target's probability follow the pixels that a map ranks highest?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ercr.geometry import Floats

BUDGETS = (0.1, 0.2, 0.3)


def ranked_pixels(heat: Floats) -> NDArray[np.int64]:
    """Flat pixel indices by falling heat; ties by index."""
    return np.argsort(-heat.ravel(), kind="stable")


def top_mask(heat: Floats, share: float) -> NDArray[np.bool_]:
    """The floor(share H W) highest pixels."""
    mask = np.zeros(heat.size, bool)
    mask[ranked_pixels(heat)[: int(share * heat.size)]] = True
    return mask.reshape(heat.shape)


def perturbed(
    image: NDArray[np.uint8], heat: Floats, budgets: Sequence[float] = BUDGETS
) -> tuple[list[NDArray[np.uint8]], list[NDArray[np.uint8]], NDArray[np.uint8]]:
    """Images with the top pixels deleted, images with only them inserted, and the baseline of mean colour."""
    baseline = np.broadcast_to(image.reshape(-1, 3).mean(0).round().astype(np.uint8), image.shape)
    order = ranked_pixels(heat)
    deleted, inserted = [], []
    for share in budgets:
        mask = np.zeros(heat.size, bool)
        mask[order[: int(share * heat.size)]] = True
        chosen = mask.reshape(heat.shape)[..., None]
        deleted.append(np.where(chosen, baseline, image))
        inserted.append(np.where(chosen, image, baseline))
    return deleted, inserted, np.asarray(baseline)


def changes(
    whole: float, baseline: float, deleted: Sequence[float], inserted: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Log-probability lost by deletion and gained by insertion (eqs. 17 and 18 of the paper)."""
    return [whole - value for value in deleted], [value - baseline for value in inserted]
