"""The rank Gaussian filter of TAM: a Gaussian over the sorted values of each 3x3 window."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.image.pieces import Sheet

_ENTRIES = 2**24  # of the windows in memory at once, so that memory is bounded for long answers on large images


def rank_gaussian(maps: Tensor, sheets: tuple[Sheet, ...] | None = None) -> Tensor:
    """Filter maps [R, h, w]; the width of the Gaussian is each window's coefficient of variation.

    A window with a mean <= 0 gives 0, and a constant positive window its median. The padding reflects; a map of a
    single row or column is padded by its edge, because reflection needs two cells. Where a map's cells are those of
    several `sheets`, each of them is filtered by itself.
    """
    sheets = sheets or ((1, maps.shape[-2], maps.shape[-1]),)
    if len(maps) > 1 and 9 * maps.numel() > _ENTRIES:
        step = max(1, _ENTRIES * len(maps) // (9 * maps.numel()))
        return torch.cat([rank_gaussian(maps[start : start + step], sheets) for start in range(0, len(maps), step)])
    cells, offsets = _windows(sheets, maps.device, maps.dtype)
    windows = maps.flatten(-2).index_select(-1, cells).view(*maps.shape, 9).sort(-1).values
    spread, mean = torch.std_mean(windows, -1, unbiased=False, keepdim=True)
    # at this width, far below one rank, all weight is on the median: the limit of sigma -> 0
    width = (spread / mean.clamp(min=torch.finfo(maps.dtype).tiny)).clamp(min=1e-3)
    weights = (offsets / width**2).softmax(-1)
    return ((windows * weights).sum(-1, keepdim=True) * (mean > 0)).squeeze(-1)


@lru_cache(maxsize=64)
def _windows(sheets: tuple[Sheet, ...], device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The nine cells of every window [cells * 9], and the exponents [9] of a Gaussian of width 1 over their ranks."""
    around, first = [], 0
    for count, height, width in sheets:
        own = _around(height, width)
        starts = first + height * width * torch.arange(count)
        around.append((starts[:, None] + own).flatten())
        first += count * height * width
    offsets = -((torch.arange(9.0) - 4.0) ** 2) / 2
    return torch.cat(around).to(device), offsets.to(device, dtype)


def _around(height: int, width: int) -> Tensor:
    """The nine cells of every window of one grid [height * width * 9]."""
    cells = torch.arange(height * width, dtype=torch.float64).view(1, height, width)
    padded = F.pad(cells, (1, 1, 0, 0), mode="reflect" if width > 1 else "replicate")
    padded = F.pad(padded, (0, 0, 1, 1), mode="reflect" if height > 1 else "replicate")
    return padded.unfold(-2, 3, 1).unfold(-2, 3, 1).flatten().long()
