"""Deletion and insertion: does the target's probability depend on the pixels that a map ranks highest?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ercr.errors import InputError, nearest

if TYPE_CHECKING:
    from ercr.image.geometry import Geometry
    from ercr.metrics.several import PixelRow

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


class Curves(NamedTuple):
    """Scores of a picture, of its baseline, and of it with ever more pixels deleted or inserted by each map."""

    whole: Any  # a number or an array, as `score` gives for one picture
    blank: Any
    deleted: list[Any]  # by map: [shares, …]
    inserted: list[Any]


def curves(
    image: Pixels,
    maps: Sequence[tuple[Geometry | PixelRow, NDArray[Any]]],
    score: Callable[[Iterator[Pixels]], Any],
    shares: Sequence[float] = CURVE,
    baseline: Baseline | Pixels = "mean",
) -> Curves:
    """What pictures score when the highest pixels of maps [h, w], each with its geometry, are deleted or inserted.

    `score` takes all pictures, which are made as it asks for them, and gives an array with a row for each. Nothing
    deleted is the picture itself and everything deleted the baseline: both are scored once.
    """
    blank = baseline_image(image, baseline) if isinstance(baseline, str) else baseline
    inner = [share for share in shares if 0 < share < 1]

    def pictures() -> Iterator[Pixels]:
        yield from (image, blank)
        for geometry, map_ in maps:
            deleted, inserted, _ = perturbed(image, geometry.to_pixels(map_), inner, blank)
            yield from (*deleted, *inserted)

    scores = score(pictures())
    ends, between = scores[:2], scores[2:].reshape(len(maps), 2, len(inner), *scores.shape[1:])

    def curve(values: Any, at_none: Any, at_all: Any) -> Any:
        left = iter(values)
        return np.asarray([next(left) if 0 < s < 1 else at_none if s <= 0 else at_all for s in shares])

    deleted = [curve(of_map[0], *ends) for of_map in between]
    inserted = [curve(of_map[1], *ends[::-1]) for of_map in between]
    return Curves(ends[0], ends[1], deleted, inserted)


def changes(whole: Any, blank: Any, deleted: Any, inserted: Any) -> tuple[Any, Any]:
    """Log-probability lost by deletion and gained by insertion (eqs. 26 and 27 of the paper), [..., shares]."""
    return np.asarray(whole)[..., None] - deleted, inserted - np.asarray(blank)[..., None]


def auc(values: Any, budgets: Sequence[float] = CURVE) -> Any:
    """Area under curves [..., budgets] by the trapezoidal rule, divided by the width: the mean height of the curve."""
    at, heights = np.asarray(budgets, float), np.asarray(values, float)
    return ((heights[..., 1:] + heights[..., :-1]) / 2 * np.diff(at)).sum(-1) / (at[-1] - at[0])
