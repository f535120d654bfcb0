"""What lies between a decoder's matrix products, in torch; `models/kernels.py` has the same as one kernel each."""

from __future__ import annotations

import sys
import warnings
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def steps_for(like: Tensor) -> Any:
    """The module with these functions for states like these: kernels on a GPU, where Triton's work."""
    found = _kernels(like.device, like.dtype) if like.is_cuda else None
    return sys.modules[__name__] if found is None else found


@cache
def _kernels(device: torch.device, kind: torch.dtype) -> Any:
    """The kernels, if they run there: torch for Windows has no Triton, and Triton needs a C compiler."""
    try:
        from ercr.models import kernels

        with torch.cuda.device(device):
            states = torch.ones(2, 2, 8, device=device, dtype=kind)
            places = torch.arange(2, device=device)
            kernels.turn(states, states, states, states[:, :1], states[:, :1], None, 0.0, None, None)
            kernels.turn(*(states,) * 3, states[:, :1], states[:, :1], None, 0.0, (states + 0, states + 0), places)
            kernels.add_norm(states[0], states[1], states[0, 0], 1e-6)
            kernels.quick_gelu(kernels.gated(states, states))
    except Exception as error:  # of many kinds, from Triton, the compiler and the driver
        warnings.warn(f"Bulk runs are slower here, because Triton's kernels do not run: {error}", stacklevel=4)
        return None
    return kernels


def add_norm(x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of both [T, d], and its RMS norm."""
    total = x if more is None else x + more
    return total, _norm(total, weight, eps)


def turn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cos: Tensor,
    sin: Tensor,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    cache: tuple[Tensor, Tensor] | None,
    to: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Queries and keys [T, heads, d] turned by their positions; keys and values also go `to` places of the cache."""
    if norms is not None:
        q, k = _norm(q, norms[0], eps), _norm(k, norms[1], eps)
    q, k = _turned(q, cos, sin), _turned(k, cos, sin)
    if cache is not None:
        cache[0][to], cache[1][to] = k, v
    return q, k


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """SiLU of the gate, times the other."""
    return F.silu(gate) * up


def quick_gelu(x: Tensor) -> Tensor:
    """x times the sigmoid of 1.702 x."""
    return x * torch.sigmoid(1.702 * x)


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)
