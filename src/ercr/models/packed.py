"""Attention over images packed into one sequence, without a loop over them; used only for compile=True.

Vision towers with dynamic resolution pack all images into one sequence in which each image attends to itself.
transformers' code calls attention once per image and reads the lengths from the device before every block, which a
CUDA graph cannot do. Here images (or windows) of equal length share one call, and the lengths are known on the CPU.
This affects the last digits, and in half precision it can change words.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Groups:
    """Segments of a packed sequence by length: (length, count), in packed order or in the order that `order` makes."""

    sizes: tuple[tuple[int, int], ...]
    order: Tensor | None = None  # moves segments of equal length next to each other
    inverse: Tensor | None = None  # undoes `order`


@lru_cache(maxsize=64)
def group_segments(lengths: tuple[int, ...], device: torch.device) -> Groups:
    """Group neighbours of equal length; if lengths alternate, sort the segments by length first."""
    runs: list[list[int]] = []
    for length in lengths:
        if runs and runs[-1][0] == length:
            runs[-1][1] += 1
        else:
            runs.append([length, 1])
    kinds = sorted(set(lengths))
    if len(runs) == len(kinds):
        return Groups(tuple((length, count) for length, count in runs))
    starts = torch.tensor([0, *lengths]).cumsum(0)
    sizes = tuple((length, lengths.count(length)) for length in kinds)
    picked = [torch.arange(length) + starts[i] for length in kinds for i, n in enumerate(lengths) if n == length]
    order = torch.cat(picked)
    return Groups(sizes, order.to(device), order.argsort().to(device))


def attend(query: Tensor, key: Tensor, value: Tensor, groups: Groups, scale: float) -> Tensor:
    """Attention within segments: [N, heads, d] each to [N, heads * d]."""
    parts = (query, key, value)
    if groups.order is not None:
        parts = tuple(part[groups.order] for part in parts)  # type: ignore[assignment]
    results, start = [], 0
    for length, count in groups.sizes:
        stop = start + length * count
        q, k, v = (part[start:stop].view(count, length, *part.shape[1:]).transpose(1, 2) for part in parts)
        out = F.scaled_dot_product_attention(q, k, v, scale=scale)
        results.append(out.transpose(1, 2).reshape(length * count, -1))
        start = stop
    joined = results[0] if len(results) == 1 else torch.cat(results)
    return joined if groups.inverse is None else joined[groups.inverse]


def _patches(module: Any, hidden_states: Tensor) -> Tensor:
    """The patch convolution as one matrix product, which is equivalent because patches do not overlap, and faster."""
    weight, bias = module.proj.weight, module.proj.bias
    return F.linear(hidden_states.to(weight.dtype), weight.flatten(1), bias)


@lru_cache(maxsize=8)
def _rotation(module: str) -> Callable[..., tuple[Tensor, Tensor]]:
    rotate: Callable[..., tuple[Tensor, Tensor]] = torch.compile(
        sys.modules[module].apply_rotary_pos_emb_vision, dynamic=True
    )
    return rotate


def _forward(
    module: Any,
    groups: dict[int, Groups],
    hidden_states: Tensor,
    cu_seqlens: Tensor,
    position_embeddings: Any = None,
    **_: Any,
) -> Tensor:
    """What the tower's attention module computes, with one call per group of segments."""
    rotate = _rotation(type(module).__module__)
    count = len(hidden_states)
    query, key, value = module.qkv(hidden_states).reshape(count, 3, module.num_heads, -1).permute(1, 0, 2, 3).unbind(0)
    query, key = rotate(query, key, *position_embeddings)
    out: Tensor = module.proj(attend(query, key, value, groups[id(cu_seqlens)], module.scaling))
    return out


@contextmanager
def packed_tower(tower: Any, groups: dict[int, Groups]) -> Iterator[None]:
    """Replace a tower's attention by `attend`; the groups are found by the id of the tensor cu_seqlens."""
    attention = [block.attn for block in tower.blocks]
    changed: list[nn.Module] = [*attention, tower.patch_embed]
    # another backend, or a forward that was patched already (by offloading), must not be replaced
    if tower.config._attn_implementation != "sdpa" or any("forward" in vars(module) for module in changed):
        yield
        return
    for module in attention:
        module.forward = partial(_forward, module, groups)
    tower.patch_embed.forward = partial(_patches, tower.patch_embed)
    try:
        yield
    finally:
        for module in changed:
            del module.forward
