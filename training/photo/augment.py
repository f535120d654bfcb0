"""Random augmentation of pictures for the vision tower."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SIZES = (144, 192, 224, 288)  # pixels; the largest is the model's own, the others are its views


def normalise(pictures: Tensor) -> Tensor:
    return (pictures - 127.0) / 128.0


def augment(pictures: Tensor, size: int) -> Tensor:
    """A random part of each picture, mirrored or not, a little brighter or darker; [B, 3, size, size] from 8 bits."""
    count, device = len(pictures), pictures.device
    share = torch.rand(2, count, device=device)
    wide = 0.5 + 0.5 * share[0]
    high = (wide * (1 + (share[1] - 0.5) * 0.3)).clamp(max=1)
    shift = (torch.rand(2, count, device=device) * 2 - 1) * (1 - torch.stack([wide, high]))
    mirror = torch.randint(0, 2, (count,), device=device) * 2.0 - 1
    zero = torch.zeros_like(wide)
    where = torch.stack([torch.stack([wide * mirror, zero, shift[0]], 1), torch.stack([zero, high, shift[1]], 1)], 1)
    grid = F.affine_grid(where, [count, 3, size, size], align_corners=False)
    cut = F.grid_sample(pictures.float(), grid, align_corners=False, padding_mode="border")
    light = (torch.rand(2, count, 1, 1, 1, device=device) - 0.5) * 0.4
    crisp, noise = torch.rand(2, count, 1, 1, 1, device=device)
    # the stored pictures are enlarged and soft; others will be sharper, or noisy
    cut = cut + 2 * crisp * (cut - F.avg_pool2d(cut, 3, 1, 1, count_include_pad=False))
    cut = cut + 8 * noise * torch.randn_like(cut)
    return normalise((cut * (1 + light[0]) + 64 * light[1]).clamp(0, 255))
