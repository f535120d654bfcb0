"""Where on the picture each number comes from that a processor makes, asked with four charts; runs no model.

Black and white say how a processor scales values and where it pads: there both give the same number. A ramp to the
right and one downwards then say which column and which row of the picture a number shows. A ramp of 8-bit values has
steps of several pixels on a large picture, so neighbouring rows have their steps at different places, and means over a
cell are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

_LOW, _HIGH = 16, 239  # darkest and lightest value of a ramp, so that a resize may overshoot
_GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly
_SPAN = 1e-3  # numbers that differ less between black and white show no part of the picture
_IMAGE_SIDE = 8  # least side of a tensor that is read as a picture


def charts(width: int, height: int) -> list[Image.Image]:
    """Black, white, a ramp to the right and one downwards."""
    right = _ramp(width, height)
    down = np.ascontiguousarray(_ramp(height, width).T)
    planes = np.zeros((height, width), np.uint8), np.full((height, width), 255, np.uint8), right, down
    return [Image.fromarray(np.repeat(plane[..., None], 3, axis=2)) for plane in planes]


def _ramp(length: int, others: int) -> NDArray[np.uint8]:
    """Values [others, length] that rise along the second axis, each row with its steps at other places."""
    rising = _LOW + (np.arange(length) + 0.5) / length * (_HIGH - _LOW)
    phase = (np.arange(others) * _GOLDEN) % 1
    return np.floor(rising[None] + phase[:, None]).astype(np.uint8)


def float_leaves(value: Any) -> list[Tensor]:
    """The floating tensors of a processor's output, which hold the picture's numbers, in a fixed order."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() and value.ndim >= 2 else []
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in float_leaves(value[key])]
    return [leaf for part in value for leaf in float_leaves(part)] if isinstance(value, list | tuple) else []


def coordinates(process: Callable[[Image.Image], Any], width: int, height: int) -> tuple[Tensor, Tensor]:
    """Column x and row y, in pixels of the picture, of every number that a processor makes; NaN where it shows nothing.

    All leaves are flattened and joined. On padding beside a picture the picture's own scale is continued.
    """
    black, white, right, down = (float_leaves(process(chart)) for chart in charts(width, height))
    xs, ys = [], []
    for none, full, across, along in zip(black, white, right, down, strict=True):
        span = (full - none).double()
        span = torch.where(span.abs() > _SPAN, span, torch.nan)
        x, y = (_read(ramp, none, span) * side for ramp, side in ((across, width), (along, height)))
        if x.ndim >= 4 and min(x.shape[-2:]) >= _IMAGE_SIDE and x.shape[-3] == 3:
            x, y = _straight(x), _straight(y.mT).mT
        xs.append(x.reshape(-1))
        ys.append(y.reshape(-1))
    empty = torch.empty(0, dtype=torch.float64)
    return (torch.cat(xs), torch.cat(ys)) if xs else (empty, empty)


def _read(ramp: Tensor, black: Tensor, span: Tensor) -> Tensor:
    """The place in 0..1 that a number shows, from its value between black and white."""
    # rounding down and the spread of the steps are half a value each, and cancel
    return ((ramp - black).double() / span * 255 - _LOW) / (_HIGH - _LOW)


def _straight(places: Tensor) -> Tensor:
    """Places [..., C, H, W] as the straight line over the columns that fits them, continued over padding.

    A picture without any place stays without; where a line does not fit, the places are kept.
    """
    seen = places.isfinite()
    count = seen.sum((-3, -2)).double()
    means = places.nan_to_num(0.0).sum((-3, -2)) / count  # [..., W], NaN on padding
    known = means.isfinite()
    at = torch.arange(means.shape[-1], dtype=torch.float64).expand_as(means)
    total = known.sum(-1, keepdim=True).double()
    middle = (at * known).sum(-1, keepdim=True) / total
    centre = means.nan_to_num(0.0).sum(-1, keepdim=True) / total
    offset = torch.where(known, at - middle, 0.0)
    slope = (offset * (means - centre).nan_to_num(0.0)).sum(-1, keepdim=True) / (offset**2).sum(-1, keepdim=True)
    line = centre + slope * (at - middle)
    fits = (line - means).abs().nan_to_num(0.0).amax(-1, keepdim=True) < 2 * slope.abs()
    line = torch.where(fits & (known.sum(-1, keepdim=True) > 1), line, means)
    # where nothing at all is shown (an empty tile), nothing is continued
    line = torch.where(known.any(-1, keepdim=True), line, torch.nan)
    return line[..., None, None, :].expand_as(places)
