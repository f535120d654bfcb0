"""Maps as pictures: uint8 levels, enlargement, Otsu's threshold, overlap with a mask; knows nothing about words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Geometry


@dataclass(frozen=True)
class Overlap:
    """How a prediction fits a mask, pixel by pixel."""

    iou: float
    precision: float
    recall: float


def levels(maps: NDArray[Any]) -> NDArray[np.uint8]:
    """Maps in 0..1 as uint8, truncated."""
    return np.asarray(np.clip(maps, 0, 1) * 255, np.uint8)


def stretch(map_: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """OpenCV's bilinear resize to a height and width."""
    import cv2

    resized: NDArray[np.uint8] = cv2.resize(map_, (size[1], size[0]), interpolation=cv2.INTER_LINEAR)
    return resized


def place(map_: NDArray[np.uint8], geometry: Geometry, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The map at the part of the image that the model saw, at this size; a plain resize if it saw the whole image."""
    if geometry.plain:
        return stretch(map_, size)
    return geometry.to_pixels(map_, size).round().astype(np.uint8)


def otsu(pixels: NDArray[np.uint8]) -> float:
    """OpenCV's Otsu threshold of a uint8 picture."""
    import cv2

    return float(cv2.threshold(pixels, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[0])


def overlap(prediction: NDArray[np.bool_], truth: NDArray[np.bool_], nothing: float = 0.0) -> Overlap:
    """IoU, precision and recall; if nothing was predicted, the precision is `nothing` and the others are 0."""
    both = int(np.count_nonzero(prediction & truth))
    predicted, true = int(np.count_nonzero(prediction)), int(np.count_nonzero(truth))
    return Overlap(
        both / max(predicted + true - both, 1),
        both / predicted if predicted else nothing,
        both / max(true, 1),
    )
