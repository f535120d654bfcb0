"""Resizing of 8-bit pictures on any device with the very numbers of Pillow's and torch's own CPU code.

Both resize 8-bit pixels in whole numbers: weights are rounded to multiples of a power of two, each output is the sum of
weighted pixels, plus a half, shifted down and clipped; first along rows, then along columns. Sums of such products are
exact in float64, so a matrix product on a GPU gives the same bits. Pillow takes weights of 22 bits, torch of 16 with
as many behind the point as fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from ercr.image.sending import sent

Backend = Literal["pillow", "torch"]
Size = tuple[int, int]  # height, width
_PILLOW_BITS = 22
_TORCH_LIMIT = 2**15
_LARGE = 2**19  # numbers of a matrix that is not worth keeping: 4 MiB


def _cubic(x: Tensor) -> Tensor:
    a, x = -0.5, x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _lanczos(x: Tensor) -> Tensor:
    inside = (x >= -3) & (x < 3)
    return torch.where(inside, _sinc(x) * _sinc(x / 3), torch.zeros_like(x))


def _sinc(x: Tensor) -> Tensor:
    turned = x * math.pi
    return torch.where(x == 0, torch.ones_like(x), turned.sin() / turned)


# by Pillow's number of the filter: the function, and how far it reaches
FILTERS: dict[int, tuple[Callable[[Tensor], Tensor], float]] = {
    1: (_lanczos, 3.0),
    2: (_triangle, 1.0),
    3: (_cubic, 2.0),
}


@lru_cache(maxsize=4096)
def weights(old: int, new: int, resample: int, backend: Backend) -> tuple[Tensor, Tensor, int]:
    """Whole weights [new, taps] in float64, the pixels [new, taps] they belong to, and their bits behind the point."""
    function, reach = FILTERS[resample]
    scale = old / new
    stretch = max(scale, 1.0)
    support = reach * stretch
    centre = (torch.arange(new, dtype=torch.float64) + 0.5) * scale
    # both round halves up by cutting off after 0.5 was added
    first = (centre - support + 0.5).clamp(min=0).floor()
    last = (centre + support + 0.5).floor().clamp(max=old)
    places = first[:, None] + torch.arange(int((last - first).max()))
    inside = places < last[:, None]
    own = torch.where(inside, function((places - centre[:, None] + 0.5) * (1 / stretch)), 0.0)
    total = torch.zeros(new, dtype=torch.float64)
    for tap in own.unbind(1):  # added from left to right, as the libraries do: another order may change the last bit
        total = total + tap
    own = own / total[:, None]
    bits = _PILLOW_BITS if backend == "pillow" else _torch_bits(float(own.max()))
    wide = own * 2**bits
    whole = torch.where(wide < 0, (wide - 0.5).ceil(), (wide + 0.5).floor())
    return whole, places.clamp(max=old - 1).long(), bits


def _torch_bits(largest: float) -> int:
    """As many bits behind the point as keep the largest weight within 16 bits."""
    bits = 0
    while bits < _PILLOW_BITS and int(0.5 + largest * 2 ** (bits + 1)) < _TORCH_LIMIT:
        bits += 1
    return bits


def _matrix(old: int, new: int, resample: int, backend: Backend, device: torch.device) -> Tensor:
    """The weights as a matrix [new, old], in units of what one pixel counts; a large one is made for each use."""
    make = _kept if old * new <= _LARGE else _made
    return make(old, new, resample, backend, device)


def _made(old: int, new: int, resample: int, backend: Backend, device: torch.device) -> Tensor:
    found, places = _on(old, new, resample, backend, device)
    return found.new_zeros(new, old).scatter_add_(1, places, found)


@lru_cache(maxsize=4096)
def _on(old: int, new: int, resample: int, backend: Backend, device: torch.device) -> tuple[Tensor, Tensor]:
    found, places, bits = weights(old, new, resample, backend)
    # a power of two changes no digit of the products, and their sums stay exact
    return sent(found * 2.0**-bits, device), sent(places, device)


_kept = lru_cache(maxsize=64)(_made)  # most of a matrix is zeros, so only a few are kept


def resize(pixels: Tensor, size: Size, resample: int, backend: Backend) -> Tensor:
    """Pixels [..., H, W] in 8 bits at another size (height, width), with the numbers of the given library."""
    height, width = pixels.shape[-2:]
    if (height, width) == tuple(size):
        return pixels
    found = pixels.double()
    if width != size[1]:
        found = _rounded(found @ _matrix(width, size[1], resample, backend, pixels.device).T)
    if height != size[0]:
        found = _rounded(_matrix(height, size[0], resample, backend, pixels.device) @ found)
    return found.to(torch.uint8)


def _rounded(sums: Tensor) -> Tensor:
    """Halves are rounded up, and what is no value of 8 bits is clipped."""
    return sums.add_(0.5).clamp_(0, 255).floor_()
