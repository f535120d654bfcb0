"""The rank Gaussian filter of TAM: a Gaussian over the sorted values of each 3x3 window."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_OFFSETS = torch.arange(9.0) - 4.0


def rank_gaussian(maps: Tensor) -> Tensor:
    """Filter maps [R, h, w]; the width of the Gaussian is each window's coefficient of variation.

    A window with mean <= 0 gives 0, a constant positive one its median. Reflect padding needs two cells; a single
    row or column is padded by its edge.
    """
    windows = _windows(maps).sort(-1).values  # [R, h, w, 9]
    mean = windows.mean(-1, keepdim=True)
    width = windows.std(-1, keepdim=True, unbiased=False) / mean.clamp(min=torch.finfo(maps.dtype).tiny)
    # far narrower than one rank, all weight falls on the median: the limit of sigma -> 0
    width = width.clamp(min=1e-3)
    weights = torch.exp(-(_OFFSETS.to(maps) ** 2) / (2 * width**2))
    filtered = (windows * weights).sum(-1) / weights.sum(-1)
    return filtered.masked_fill(mean[..., 0] <= 0, 0.0)


def _windows(maps: Tensor) -> Tensor:
    height, width = maps.shape[-2:]
    padded = F.pad(maps, (1, 1, 0, 0), mode="reflect" if width > 1 else "replicate")
    padded = F.pad(padded, (0, 0, 1, 1), mode="reflect" if height > 1 else "replicate")
    return padded.unfold(-2, 3, 1).unfold(-2, 3, 1).flatten(-2)
