"""Distorts pictograms and pictures so that a model learns shapes and not one artist's style; for training only."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.datasets.scenes.compose import Packed


def _pick(count: int, chance: float, device: torch.device) -> Tensor:
    return (torch.rand(count, device=device) < chance)[:, None, None, None]


def touch(sprites: Tensor) -> Tensor:
    """Takes outlines away, adds them, puts a white rim around or blurs; each to a share of the pictograms."""
    color, alpha, soft = sprites[:, :3], sprites[:, 3:4], sprites[:, 4:]
    count, device = len(sprites), sprites.device
    without_lines = torch.minimum(F.max_pool2d(color, 5, 1, 2), alpha)
    color = torch.where(_pick(count, 0.2, device), without_lines, color)
    with_lines = -F.max_pool2d(-color, 3, 1, 1)
    color = torch.where(_pick(count, 0.15, device), with_lines, color)
    wider = F.max_pool2d(alpha, 5, 1, 2)
    rim = _pick(count, 0.08, device)
    color = torch.where(rim, color + (wider - alpha), color)
    alpha = torch.where(rim, wider, alpha)
    blurred = F.avg_pool2d(torch.cat([color, alpha], 1), 5, 1, 2)
    both = torch.where(_pick(count, 0.15, device), blurred, torch.cat([color, alpha], 1))
    return torch.cat([both, soft], 1)


def bend(packed: Packed, tinted: Tensor) -> Packed:
    """Turns hues, changes saturation and brightness, shears and stretches; a tinted object keeps its hue."""
    color, place = packed.color, packed.place
    shape = color.shape[:2]
    rand = lambda *more: torch.rand(*shape, *more, device=color.device)  # noqa: E731
    strong = rand() < 0.4
    angle = torch.where(
        strong, torch.randn(shape, device=color.device) * 0.5, torch.zeros_like(strong, dtype=color.dtype)
    )
    angle = angle * (rand() < 0.6)
    fade = torch.where(strong, 0.3 + 1.1 * rand(), 1.0)
    fade = torch.where(rand() < 0.05, 0.0, fade)
    angle, fade = angle.masked_fill(tinted, 0.0), fade.masked_fill(tinted, 1.0)
    matrix = _hue(angle) @ _saturation(fade)
    matrix = matrix * (1 + (rand(3, 1) - 0.5) * 0.4 * strong[..., None, None]) * (0.8 + 0.4 * rand(1, 1))
    color = matrix @ color
    color[..., 3] += ((rand(1) - 0.5) * 0.3) * strong[..., None]
    eye = torch.eye(2, device=color.device)
    place = (eye + (rand(2, 2) - 0.5) * 0.36 * (rand(1, 1) < 0.6)) @ place
    return replace(packed, color=color, place=place)


def _hue(angle: Tensor) -> Tensor:
    """Rotation of colours about the grey axis."""
    cos, sin = angle.cos()[..., None, None], angle.sin()[..., None, None]
    third = torch.full((3, 3), 1 / 3, device=angle.device)
    cross = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]], device=angle.device) / math.sqrt(3)
    return cos * torch.eye(3, device=angle.device) + (1 - cos) * third + sin * cross


def _saturation(fade: Tensor) -> Tensor:
    gray = torch.tensor([0.299, 0.587, 0.114], device=fade.device).expand(3, 3)
    fade = fade[..., None, None]
    return fade * torch.eye(3, device=fade.device) + (1 - fade) * gray


def develop(pictures: Tensor) -> Tensor:
    """Contrast and brightness for every picture; for a share of the batches blur, coarse colours or noise."""
    count, device, dtype = len(pictures), pictures.device, pictures.dtype
    contrast = 1 + (torch.rand(count, 1, 1, 1, device=device) - 0.5) * 0.5
    shift = 0.5 - 0.5 * contrast + (torch.rand(count, 1, 1, 1, device=device) - 0.5) * 0.15
    pictures = pictures * contrast.to(dtype) + shift.to(dtype)
    kind = random.random()
    if kind < 0.15:
        pictures = F.avg_pool2d(pictures, 3, 1, 1, count_include_pad=False)
    elif kind < 0.22:
        levels = random.randint(3, 8)
        pictures = (pictures * levels).round() / levels
    elif kind < 0.4:
        pictures = pictures + torch.randn_like(pictures) * random.uniform(0.0, 0.04)
    return pictures.clamp(0, 1)
