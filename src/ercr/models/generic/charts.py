"""Where on the picture each number comes from that a processor makes, asked with four charts; runs no model.

Black and white say how a processor scales values and where it pads: there both give the same number. A ramp to the
right and one downwards then say which column and which row of the picture a number shows. A ramp of 8-bit values has
steps of several pixels on a large picture, so neighbouring rows have their steps at different places, and means over a
cell are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ercr.image.clips import LoadedClip
from ercr.models.inputs import Medium

_LOW, _HIGH = 16, 239  # darkest and lightest value of a ramp, so that a resize may overshoot
_GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly
_SPAN = 1e-3  # numbers that differ less between black and white show no part of the picture
_SURE = 0.5  # share of the largest span from which a number is read where several pictures are
_IMAGE_SIDE = 8  # least side of a tensor that is read as a picture
_FIRST, _APART, _DIGITS = 8, 4, 60  # brightness of number 0, of one more, and how many numbers there are


@dataclass(frozen=True)
class Readings:
    """What each number of a processor's output shows of several pictures and clips, all leaves flattened and joined."""

    piece: Tensor  # [n] index of the picture or clip, -1 for none
    frame: Tensor  # [n] of a clip: index of the frame, counted with fractions
    x: Tensor  # [n] column in pixels of its picture
    y: Tensor  # [n] row


def readings(process: Callable[[list[Medium]], Any], media: Sequence[Medium]) -> Readings:
    """What the numbers show, from charts in all places at once: where, of which piece, and of which frame.

    The number of a piece, and of a frame in two digits, is written as brightness.
    """
    sizes = [frame_size(medium) for medium in media]
    counts = [len(medium.frames) if isinstance(medium, LoadedClip) else 1 for medium in media]
    planes = [[np.asarray(chart)[..., 0] for chart in charts(*size)] for size in sizes]

    def leaves(chart: Callable[[int, int], NDArray[np.uint8]]) -> list[Tensor]:
        """The leaves where frame f of piece k shows chart(k, f)."""
        shown = [_painted(media[k], [chart(k, f) for f in range(count)]) for k, count in enumerate(counts)]
        return float_leaves(process(shown))

    def digits(number: Callable[[int, int], int]) -> list[list[Tensor]]:
        """The same where it shows the two digits of a number as brightness."""
        return [
            leaves(lambda k, f, digit=digit: np.full_like(planes[k][0], _FIRST + _APART * digit(number(k, f))))  # type: ignore[misc]
            for digit in (lambda value: value % _DIGITS, lambda value: value // _DIGITS)
        ]

    places = [leaves(lambda k, f, i=i: planes[k][i]) for i in range(4)]  # type: ignore[misc]
    parts: list[tuple[Tensor, ...]] = []
    for leaf in zip(*places, *digits(lambda k, f: k), *digits(lambda k, f: f), strict=True):
        black, span = leaf[0], (leaf[1] - leaf[0]).double()
        # where a picture's edge is mixed with padding, rounding would be read as a place
        span = torch.where(span.abs() > max(_SPAN, _SURE * float(span.abs().max())), span, torch.nan)
        x, y = (_read(ramp, black, span) for ramp in leaf[2:4])
        numbers = [((chart - black).double() / span * 255 - _FIRST) / _APART for chart in leaf[4:]]
        if _is_picture(x):
            x, y = _straight(x), _straight(y.mT).mT
            numbers = [_uniform(number) for number in numbers]
        parts.append(tuple(part.reshape(-1) for part in (x, y, *numbers)))
    x, y, *numbers = (torch.cat(part) for part in zip(*parts, strict=True))
    piece, frame = (low + _DIGITS * high.round() for low, high in (numbers[:2], numbers[2:]))
    index = torch.where(piece.isfinite(), piece.nan_to_num(0).round().clamp(0, len(media) - 1), -1).long()
    wide, tall = (torch.tensor([float(size[side]) for size in sizes], dtype=torch.float64) for side in (0, 1))
    return Readings(index, frame, x * wide[index], y * tall[index])


def frame_size(medium: Medium) -> tuple[int, int]:
    """Width and height of a picture, or of a clip's frames."""
    return medium.frames[0].size if isinstance(medium, LoadedClip) else medium.size


def _painted(medium: Medium, planes: Sequence[NDArray[np.uint8]]) -> Medium:
    """A picture, or a clip, that shows these planes instead."""
    made = [Image.fromarray(np.repeat(plane[..., None], 3, axis=2)) for plane in planes]
    return replace(medium, frames=tuple(made)) if isinstance(medium, LoadedClip) else made[0]


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
        if _is_picture(x):
            x, y = _straight(x), _straight(y.mT).mT
        xs.append(x.reshape(-1))
        ys.append(y.reshape(-1))
    empty = torch.empty(0, dtype=torch.float64)
    return (torch.cat(xs), torch.cat(ys)) if xs else (empty, empty)


def _read(ramp: Tensor, black: Tensor, span: Tensor) -> Tensor:
    """The place in 0..1 that a number shows, from its value between black and white."""
    # rounding down and the spread of the steps are half a value each, and cancel
    return ((ramp - black).double() / span * 255 - _LOW) / (_HIGH - _LOW)


def _is_picture(values: Tensor) -> bool:
    """Whether a tensor holds whole pictures or tiles [..., 3, H, W]."""
    return values.ndim >= 4 and min(values.shape[-2:]) >= _IMAGE_SIDE and values.shape[-3] == 3


def _uniform(values: Tensor) -> Tensor:
    """Values [..., C, H, W] that are the same all over a picture: the middle one, also where padding shows none."""
    middle = values.flatten(-3).nanmedian(-1).values
    return middle[..., None, None, None].expand_as(values)


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
