"""Deletion and insertion: does the target's probability depend on the pixels that a map ranks highest?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ercr.errors import InputError, nearest

BUDGETS = (0.1, 0.2, 0.3)  # those of the paper's table
CURVE = tuple(step / 20 for step in range(21))  # those of the curves and their area
Baseline = Literal["mean", "blur"]
Pixels = NDArray[np.uint8]
_BLUR = 0.1  # standard deviation of the Gaussian, as a share of the image's longer side


def baseline_image(image: Pixels, kind: Baseline = "mean") -> Pixels:
    """The uninformative image B: the mean colour of the image, or the image after a strong Gaussian blur."""
    if kind == "mean":
        colour = image.reshape(-1, image.shape[-1]).mean(0).round().astype(np.uint8)
        return np.ascontiguousarray(np.broadcast_to(colour, image.shape))
    if kind == "blur":
        import cv2

        blurred: Pixels = cv2.GaussianBlur(image, (0, 0), _BLUR * max(image.shape[:2]), borderType=cv2.BORDER_REPLICATE)
        return blurred
    raise InputError(f"The baseline must be mean or blur, not {kind!r}.{nearest(kind, ('mean', 'blur'))}")


def top_masks(heat: NDArray[Any], budgets: Sequence[float] = BUDGETS) -> NDArray[np.bool_]:
    """The floor(share H W) highest pixels of maps [..., H, W] for each share: [..., shares, H, W]; ties by index."""
    flat = heat.reshape(*heat.shape[:-2], 1, -1)
    size = flat.shape[-1]
    order = np.argsort(-flat, axis=-1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(size), order.shape), -1)
    counts = np.floor(np.round(np.asarray(budgets, float) * size, 6))  # 0.29 * 100 is 29, not 28.999…
    return np.asarray(rank < counts[:, None]).reshape(*heat.shape[:-2], len(budgets), *heat.shape[-2:])


def perturbed(
    image: Pixels, heat: NDArray[Any], budgets: Sequence[float] = BUDGETS, baseline: Baseline | Pixels = "mean"
) -> tuple[Pixels, Pixels, Pixels]:
    """Images with the top pixels of maps [..., H, W] deleted, images with only them inserted, and the baseline.

    The first two are [..., budgets, H, W, 3].
    """
    blank = baseline_image(image, baseline) if isinstance(baseline, str) else baseline
    masks = top_masks(heat, budgets)[..., None]
    return np.where(masks, blank, image), np.where(masks, image, blank), blank


def changes(
    whole: float, blank: float, deleted: Sequence[float], inserted: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Log-probability lost by deletion and gained by insertion (eqs. 26 and 27 of the paper)."""
    return [whole - value for value in deleted], [value - blank for value in inserted]


def auc(values: Any, budgets: Sequence[float] = CURVE) -> Any:
    """Area under curves [..., budgets] by the trapezoidal rule, divided by the width: the mean height of the curve."""
    at, heights = np.asarray(budgets, float), np.asarray(values, float)
    return ((heights[..., 1:] + heights[..., :-1]) / 2 * np.diff(at)).sum(-1) / (at[-1] - at[0])


def sums(
    whole: float, blank: float, deleted: Sequence[float], inserted: Sequence[float], budgets: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """One token's drops and gains at the table's budgets and, for a whole curve, their areas; for `Pooled.add`."""
    result = {}
    for name, values in zip(("deletion", "insertion"), changes(whole, blank, deleted, inserted), strict=True):
        for budget, value in zip(budgets, values, strict=True):
            if any(abs(budget - known) < 1e-9 for known in BUDGETS):
                result[f"{name}_{round(100 * budget)}"] = (float(value), 1.0)
        if len(budgets) > 1 and budgets[0] == 0 and budgets[-1] == 1:
            result[f"{name}_auc"] = (float(auc(values, budgets)), 1.0)
    return result
