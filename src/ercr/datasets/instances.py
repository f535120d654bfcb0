"""Draws label pictures from annotations of single objects: polygons, run lengths or boxes; reads no file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.errors import missing

_FAR = 10.0  # corners may lie outside by up to this many sides of the picture
Thing = tuple[int, NDArray[np.bool_]]  # category id, its pixels [H, W]


def draw(things: Sequence[Thing], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Pixel = category id, or 0 for background; larger objects are drawn first, so that small ones stay visible."""
    labels = np.zeros(size, np.uint8)
    for category, pixels in sorted(things, key=lambda thing: -int(thing[1].sum())):
        labels[pixels] = category
    return labels


def outline(shape: Any, size: tuple[int, int]) -> NDArray[np.bool_]:
    """The pixels of COCO's `segmentation` (polygons or run lengths) in a picture of (height, width)."""
    try:
        from pycocotools import mask as coco
    except ImportError:
        raise missing("Masks of COCO need pycocotools", "evaluate") from None
    height, width = size
    if isinstance(shape, Mapping):
        if [int(side) for side in shape["size"]] != [height, width]:
            raise ValueError(f"a mask of {shape['size']} for a picture of {[height, width]}")
        counts = shape["counts"]
        if isinstance(counts, str | bytes):
            runs = {"size": [height, width], "counts": counts.encode() if isinstance(counts, str) else counts}
        else:
            runs = coco.frPyObjects({"size": [height, width], "counts": _whole(counts, height * width)}, height, width)
    else:
        polygons = [corners for polygon in shape if len(corners := _corners(polygon, size)) >= 6]
        if not polygons:
            return np.zeros(size, bool)
        runs = coco.merge(coco.frPyObjects(polygons, height, width))
    return np.asarray(coco.decode(runs), bool)


def box(corners: Sequence[Any], size: tuple[int, int], kind: str = "xywh") -> NDArray[np.bool_]:
    """The pixels of a box: left, top, width, height (`xywh`) or left, top, right, bottom (`xyxy`)."""
    left, top, third, fourth = _corners(corners, size)
    right, bottom = (third, fourth) if kind == "xyxy" else (left + third, top + fourth)
    pixels = np.zeros(size, bool)
    pixels[max(0, round(top)) : max(0, round(bottom)), max(0, round(left)) : max(0, round(right))] = True
    return pixels


def _corners(values: Sequence[Any], size: tuple[int, int]) -> list[float]:
    """Coordinates as floats near the picture; ValueError for others, for which drawing would take very long."""
    found = [float(value) for value in values]
    if not all(math.isfinite(value) and abs(value) <= _FAR * max(size) for value in found):
        raise ValueError("a corner lies far outside the picture")
    return found


def _whole(counts: Sequence[Any], pixels: int) -> list[int]:
    found = [int(count) for count in counts]
    if sum(found) != pixels or min(found, default=0) < 0:
        raise ValueError("run lengths that do not fill the picture")
    return found
