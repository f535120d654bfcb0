"""Deletion and insertion: does the target's probability follow the pixels that a map ranks highest?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ercr.geometry import Floats

BUDGETS = (0.1, 0.2, 0.3)


def top_masks(heat: Floats, budgets: Sequence[float]) -> list[NDArray[np.bool_]]:
    """The floor(share H W) highest pixels for each share; ties by index."""
    order = np.argsort(-heat.ravel(), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(heat.size)
    return [(rank < int(share * heat.size)).reshape(heat.shape) for share in budgets]


def perturbed(
    image: NDArray[np.uint8], heat: Floats, budgets: Sequence[float] = BUDGETS
) -> tuple[list[NDArray[np.uint8]], list[NDArray[np.uint8]], NDArray[np.uint8]]:
    """Images with the top pixels deleted, images with only them inserted, and the baseline of mean colour."""
    baseline = np.broadcast_to(image.reshape(-1, 3).mean(0).round().astype(np.uint8), image.shape)
    masks = [mask[..., None] for mask in top_masks(heat, budgets)]
    deleted = [np.where(mask, baseline, image) for mask in masks]
    inserted = [np.where(mask, image, baseline) for mask in masks]
    return deleted, inserted, np.asarray(baseline)


def changes(
    whole: float, baseline: float, deleted: Sequence[float], inserted: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Log-probability lost by deletion and gained by insertion (eqs. 17 and 18 of the paper)."""
    return [whole - value for value in deleted], [value - baseline for value in inserted]
