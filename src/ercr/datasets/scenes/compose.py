"""Draws layouts as pictures with exact masks, one or many at a time, on any device; it chooses nothing itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .layout import COLORS, Layout, Placed
from .pictograms import SIZE, Bank

MOST = 5  # objects in a scene
_FILL = (SIZE - 4) / SIZE  # the part of a stored pictogram that is drawn on
_LUMA = (0.299, 0.587, 0.114)
Touch = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Packed:
    """Layouts of one size as tensors, ready to be drawn together."""

    width: int
    height: int
    active: tuple[int, ...]  # for each slot, the number of leading scenes that hold all its objects
    pictogram: Tensor  # [B, MOST] index into the bank, -1 where there is no object
    place: Tensor  # [B, MOST, 2, 3] from picture coordinates to pictogram coordinates
    color: Tensor  # [B, MOST, 3, 4] from premultiplied RGBA to RGB
    base: Tensor  # [B, 3]
    grain: Tensor  # [B, 3]
    weave: Tensor  # [B, 4]
    light: Tensor  # [B, 3]
    shadow: Tensor  # [B, 3]

    def to(self, device: torch.device | str) -> Packed:
        moved = {k: v.to(device, non_blocking=True) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)  # type: ignore[arg-type]

    def every(self, step: int) -> Packed:
        """The first of each `step` scenes."""
        kept = {k: v[::step] for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **kept, active=tuple(-(-rows // step) for rows in self.active))  # type: ignore[arg-type]


def bank_tensor(bank: Bank) -> Tensor:
    """A bank as floats [pictogram, 5, SIZE, SIZE]: RGB times alpha, alpha, and a soft alpha for shadows."""
    sprites = torch.from_numpy(np.ascontiguousarray(bank)).permute(0, 3, 1, 2).float() / 255
    soft = F.avg_pool2d(sprites[:, 3:], 13, 1, 6)
    return torch.cat([sprites, soft], 1)


def pack(layouts: Sequence[Layout], styles: Sequence[Sequence[int]] | None = None, stride: int = 0) -> Packed:
    """Layouts of one size as tensors; with several styles in a bank, object k of b uses row `style * stride + p`."""
    if len({(one.width, one.height) for one in layouts}) != 1:
        raise ValueError("Only layouts of one size can be drawn together.")
    pictogram = np.full((len(layouts), MOST), -1, np.int64)
    place = np.zeros((len(layouts), MOST, 2, 3), np.float32)
    color = np.zeros((len(layouts), MOST, 3, 4), np.float32)
    for b, layout in enumerate(layouts):
        for k, placed in enumerate(layout.objects):
            style = styles[b][k] if styles is not None else 0
            pictogram[b, k] = style * stride + placed.pictogram
            place[b, k] = _place(placed, layout.width, layout.height)
            color[b, k] = _color(placed)
    active = tuple(int(np.flatnonzero(slot >= 0)[-1]) + 1 for slot in pictogram.T if (slot >= 0).any())

    def column(key: str) -> Tensor:
        return torch.tensor([getattr(one, key) for one in layouts], dtype=torch.float32)

    return Packed(
        width=layouts[0].width,
        height=layouts[0].height,
        active=active,
        pictogram=torch.from_numpy(pictogram),
        place=torch.from_numpy(place),
        color=torch.from_numpy(color),
        base=column("base"),
        grain=column("grain"),
        weave=column("weave"),
        light=column("light"),
        shadow=column("shadow"),
    )


def _place(placed: Placed, width: int, height: int) -> list[list[float]]:
    """The affine map that `affine_grid` wants: from the picture's [-1, 1] square to the pictogram's."""
    reach = placed.side / 2 / _FILL
    cos, sin = math.cos(placed.angle) / reach, math.sin(placed.angle) / reach
    across = (-1 if placed.flip else 1) / min(placed.squeeze, 1.0)
    down = max(placed.squeeze, 1.0)
    rows = ((across * cos, across * sin), (-down * sin, down * cos))
    shift_x, shift_y = width / 2 - placed.x, height / 2 - placed.y
    return [[a * width / 2, b * height / 2, a * shift_x + b * shift_y] for a, b in rows]


def _color(placed: Placed) -> list[list[float]]:
    """Per-channel gain; a tinted object keeps a quarter of its colours and takes the rest from the tint."""
    rows = []
    for c in range(3):
        row = [placed.gain[c] * (c == i) for i in range(3)] + [0.0]
        if placed.tint:
            level = COLORS[placed.tint][c]
            row = [0.25 * own + 0.55 * level * weight for own, weight in zip(row, _LUMA, strict=False)]
            row.append(0.3 * level)
        rows.append(row)
    return rows


def compose(
    packed: Packed,
    bank: Tensor,
    generator: torch.Generator | None = None,
    touch: Touch | None = None,
    shadows: bool = True,
    frames: int = 1,
) -> Tensor:
    """Pictures [B, 3, H, W] in 0..1, in the bank's precision.

    `touch` may alter the pictograms [B, 5, SIZE, SIZE] of one slot before they are placed. So many scenes in a row are
    the `frames` of a clip: they share a ground, and their pictograms look alike.
    """
    picture = background(packed.every(frames), bank.dtype, generator).repeat_interleave(frames, 0)
    for k, rows in enumerate(packed.active):
        sprites = _sprites(packed, bank, k, rows)[::frames]
        sprites = (sprites if touch is None else touch(sprites)).repeat_interleave(frames, 0)
        if shadows:
            shade = _sample(sprites[:, 4:], _shifted(packed, k)[:rows], packed)
            picture[:rows] *= 1 - shade * packed.shadow[:rows, :1, None, None].to(bank.dtype)
        drawn = _sample(_painted(sprites, packed.color[:rows, k]), packed.place[:rows, k], packed)
        picture[:rows] *= 1 - drawn[:, 3:]
        picture[:rows] += drawn[:, :3]
    return _lit(picture, packed).clamp(0, 1)


def visible(packed: Packed, bank: Tensor) -> Tensor:
    """What can be seen of every object [B, MOST, H, W]: where it is more than half opaque and nothing covers it."""
    count, device = len(packed.pictogram), packed.pictogram.device
    masks = torch.zeros(count, MOST, packed.height, packed.width, dtype=torch.bool, device=device)
    for k, rows in enumerate(packed.active):
        alpha = _sample(_sprites(packed, bank, k, rows)[:, 3:4], packed.place[:rows, k], packed)
        solid = alpha > 0.5
        masks[:rows] &= ~solid
        masks[:rows, k] = solid[:, 0]
    return masks


def _sprites(packed: Packed, bank: Tensor, k: int, rows: int) -> Tensor:
    """The pictograms of slot k, empty where a scene has no such object."""
    index = packed.pictogram[:rows, k]
    return bank[index.clamp(min=0)] * (index >= 0)[:, None, None, None]


def _painted(sprites: Tensor, color: Tensor) -> Tensor:
    """Pictograms in their new colours, still multiplied by alpha."""
    alpha = sprites[:, 3:4]
    paint = (color.to(sprites.dtype) @ sprites[:, :4].flatten(2)).reshape(sprites[:, :3].shape)
    return torch.cat([torch.minimum(paint.clamp(min=0), alpha), alpha], 1)


def _sample(sprites: Tensor, place: Tensor, packed: Packed) -> Tensor:
    grid = F.affine_grid(place, [len(sprites), 1, packed.height, packed.width], align_corners=False)
    return F.grid_sample(sprites, grid.to(sprites.dtype), align_corners=False)


def _shifted(packed: Packed, k: int) -> Tensor:
    """The placing of object k's shadow: the object's own, moved by the layout's offset."""
    place = packed.place[:, k].clone()
    place[:, :, 2] -= packed.shadow[:, 1:]
    return place


def background(packed: Packed, dtype: torch.dtype, generator: torch.Generator | None = None) -> Tensor:
    """The textured ground [B, 3, H, W] without objects and before the light falls on it."""
    count, size, device = len(packed.base), (packed.height, packed.width), packed.base.device

    def noise(channels: int, height: int, width: int, strength: Tensor) -> Tensor:
        drawn = torch.randn(count, channels, height, width, device=device, dtype=dtype, generator=generator)
        return drawn * strength[:, None, None, None].to(dtype)

    coarse, medium, fine = packed.grain.unbind(1)
    blotches = noise(3, 5, 5, coarse) + packed.base[:, :, None, None].to(dtype)
    ground = F.interpolate(blotches, size, mode="bicubic", align_corners=False)
    ground += F.interpolate(noise(1, 28, 28, medium), size, mode="bilinear", align_corners=False)
    ground += noise(1, *size, fine) + _weave(packed).to(dtype)
    return ground.clamp_(0.02, 1)


def _mesh(packed: Packed) -> tuple[Tensor, Tensor]:
    device = packed.base.device
    y = torch.linspace(-1, 1, packed.height, device=device)[None, :, None]
    x = torch.linspace(-1, 1, packed.width, device=device)[None, None, :]
    return y, x


def _weave(packed: Packed) -> Tensor:
    """Stripes, or a crossed cloth pattern."""
    y, x = _mesh(packed)
    strength, cycles, angle, crossed = (v[:, None, None] for v in packed.weave.unbind(1))
    one = torch.sin(math.pi * cycles * (x * angle.cos() + y * angle.sin()))
    two = torch.sin(math.pi * cycles * (y * angle.cos() - x * angle.sin()))
    return (strength * torch.where(crossed > 0.5, one * two, one))[:, None]


def _lit(picture: Tensor, packed: Packed) -> Tensor:
    y, x = _mesh(packed)
    across, down, corners = (v[:, None, None] for v in packed.light.unbind(1))
    return picture * (1 + across * x + down * y - corners * (x * x + y * y) / 2)[:, None].to(picture.dtype)
