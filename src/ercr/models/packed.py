"""Attention over pictures that lie one behind the other, without a loop over them; for captured passes only.

Vision towers with dynamic resolution pack all pictures into one sequence and let each attend to itself. The stock
code calls attention once per picture and asks the device for the lengths before every block, which no captured pass
may do. Here pictures (or windows) of equal length share one call, and lengths are known on the host. Last digits
differ from the stock code's, and in half precision words may.
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
    """Segments of a packed sequence by length: (length, count) in packed order, or in that of `order`."""

    sizes: tuple[tuple[int, int], ...]
    order: Tensor | None = None  # gathers the segments of one length next to each other
    back: Tensor | None = None


@lru_cache(maxsize=64)
def group_segments(lengths: tuple[int, ...], device: torch.device) -> Groups:
    """Equal neighbours share a call; where lengths alternate, segments are first sorted by length."""
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
    return joined if groups.back is None else joined[groups.back]


def _patches(module: Any, hidden_states: Tensor) -> Tensor:
    """Patches that do not overlap need no convolution: one product, which is what the device is good at."""
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
    known: dict[int, Groups],
    hidden_states: Tensor,
    cu_seqlens: Tensor,
    position_embeddings: Any = None,
    **_: Any,
) -> Tensor:
    """What the tower's attention module computes, with the segments in groups."""
    rotate = _rotation(type(module).__module__)
    count = len(hidden_states)
    query, key, value = module.qkv(hidden_states).reshape(count, 3, module.num_heads, -1).permute(1, 0, 2, 3).unbind(0)
    query, key = rotate(query, key, *position_embeddings)
    out: Tensor = module.proj(attend(query, key, value, known[id(cu_seqlens)], module.scaling))
    return out


@contextmanager
def packed_tower(tower: Any, groups: dict[int, Groups]) -> Iterator[None]:
    """Let a tower attend in groups, which are known by the identity of their cu_seqlens."""
    attention = [block.attn for block in tower.blocks]
    changed: list[nn.Module] = [*attention, tower.patch_embed]
    # another backend, or a forward of the instance's own (offloading), is somebody else's choice: leave it
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
