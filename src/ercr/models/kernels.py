"""Triton kernels for what lies between a decoder's matrix products, with the very roundings of the model's own modules.

Eager torch launches a kernel, and writes all states to memory, for every multiplication of a norm or a rotation. Here
each of these steps is one kernel. Imported only where states lie on a GPU; `models/steps.py` has the same in torch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_HEADS = 16  # heads of a token that one program turns
_BLOCK = 1024  # numbers that one program gates


@triton.jit
def _add_norm(x, more, weight, total, out, width, eps, ADDS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(x + row + at, mask=inside, other=0.0)
    if ADDS:
        value = (value.to(tl.float32) + tl.load(more + row + at, mask=inside, other=0.0).to(tl.float32)).to(value.dtype)
        tl.store(total + row + at, value, mask=inside)
    wide = value.to(tl.float32)
    wide = wide * tl.rsqrt(tl.sum(wide * wide, 0) / width + eps)
    scaled = wide.to(value.dtype).to(tl.float32) * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, scaled.to(value.dtype), mask=inside)


def add_norm(x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum of both [T, d], and its RMS norm."""
    x = x.contiguous()
    total = x if more is None else torch.empty_like(x)
    out, width = torch.empty_like(x), x.shape[1]
    more = None if more is None else more.contiguous()
    block = triton.next_power_of_2(width)
    _add_norm[(len(x),)](
        x, more, weight, total, out, width, eps, ADDS=more is not None, BLOCK=block, num_warps=8 if block > 2048 else 4
    )
    return total, out


@triton.jit
def _normed(left, right, weight, first, wanted, half, width, eps):
    """Both halves of heads behind the RMS norm over a head."""
    a, b = left.to(tl.float32), right.to(tl.float32)
    scale = tl.rsqrt(tl.sum(a * a + b * b, 1) / width + eps)[:, None]
    for_a = tl.load(weight + first, mask=wanted, other=0.0).to(tl.float32)
    for_b = tl.load(weight + first + half, mask=wanted, other=0.0).to(tl.float32)
    a, b = (a * scale).to(left.dtype).to(tl.float32), (b * scale).to(left.dtype).to(tl.float32)
    return (a * for_a).to(left.dtype), (b * for_b).to(left.dtype)


@triton.jit
def _turn(
    q, k, v, cos, sin, q_norm, k_norm, q_out, k_out, keys, values, places,
    q_step, k_step, v_step, q_heads, k_heads, width, eps,
    NORMS: tl.constexpr, KEEPS: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    other = head - q_heads
    half = width // 2
    place = tl.arange(0, HALF)[None, :]
    inside = place < half
    is_q, is_k = inside & (head < q_heads), inside & (other >= 0) & (other < k_heads)
    at_q, at_k = head * width + place, other * width + place
    left = tl.load(q + token * q_step + at_q, mask=is_q, other=0.0)
    left += tl.load(k + token * k_step + at_k, mask=is_k, other=0.0)
    right = tl.load(q + token * q_step + at_q + half, mask=is_q, other=0.0)
    right += tl.load(k + token * k_step + at_k + half, mask=is_k, other=0.0)
    if NORMS:
        q_left, q_right = _normed(left, right, q_norm, place, is_q, half, width, eps)
        k_left, k_right = _normed(left, right, k_norm, place, is_k, half, width, eps)
        left, right = tl.where(is_q, q_left, k_left), tl.where(is_q, q_right, k_right)
    # a product is rounded to the precision of the cosines, as it is when torch multiplies
    kind = cos.dtype.element_ty
    angle = token * width + place
    cos_left = tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)
    cos_right = tl.load(cos + angle + half, mask=inside, other=0.0).to(tl.float32)
    sin_left = tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)
    sin_right = tl.load(sin + angle + half, mask=inside, other=0.0).to(tl.float32)
    a, b = left.to(tl.float32), right.to(tl.float32)
    turned_left = (a * cos_left).to(kind).to(tl.float32) - (b * sin_left).to(kind).to(tl.float32)
    turned_right = (b * cos_right).to(kind).to(tl.float32) + (a * sin_right).to(kind).to(tl.float32)
    turned_left, turned_right = turned_left.to(left.dtype), turned_right.to(left.dtype)
    tl.store(q_out + token * q_heads * width + at_q, turned_left, mask=is_q)
    tl.store(q_out + token * q_heads * width + at_q + half, turned_right, mask=is_q)
    tl.store(k_out + token * k_heads * width + at_k, turned_left, mask=is_k)
    tl.store(k_out + token * k_heads * width + at_k + half, turned_right, mask=is_k)
    if KEEPS:
        kept = tl.load(places + token) * k_heads * width
        tl.store(keys + kept + at_k, turned_left, mask=is_k)
        tl.store(keys + kept + at_k + half, turned_right, mask=is_k)
        third = other - k_heads
        is_v = inside & (third >= 0) & (third < k_heads)
        at_v = third * width + place
        tl.store(values + kept + at_v, tl.load(v + token * v_step + at_v, mask=is_v), mask=is_v)
        at_v += half
        tl.store(values + kept + at_v, tl.load(v + token * v_step + at_v, mask=is_v), mask=is_v)


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
    tokens, heads, width = q.shape
    shared = k.shape[1]
    turned, kept = q.new_empty(q.shape), k.new_empty(k.shape)
    cos, sin = cos.reshape(tokens, width).contiguous(), sin.reshape(tokens, width).contiguous()
    q_norm, k_norm = norms or (None, None)
    keys, values = cache or (None, None)
    rows = heads + (2 if cache is not None else 1) * shared
    _turn[(tokens, triton.cdiv(rows, _HEADS))](
        *(q, k, v, cos, sin, q_norm, k_norm, turned, kept, keys, values, to),
        *(q.stride(0), k.stride(0), v.stride(0), heads, shared, width, eps),
        NORMS=norms is not None,
        KEEPS=cache is not None,
        HALF=triton.next_power_of_2(width // 2),
        HEADS=_HEADS,
        enable_fp_fusion=False,  # a fused multiplication and addition would not round the product
    )
    return turned, kept


@triton.jit
def _gated(gate, up, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    opened = tl.load(gate + at, mask=inside, other=0.0)
    wide = opened.to(tl.float32)
    wide = (wide / (1 + tl.exp(-wide))).to(opened.dtype).to(tl.float32)
    tl.store(out + at, (wide * tl.load(up + at, mask=inside, other=0.0).to(tl.float32)).to(opened.dtype), mask=inside)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """SiLU of the gate, times the other."""
    out = torch.empty_like(gate)
    _gated[(triton.cdiv(gate.numel(), _BLOCK),)](gate, up, out, gate.numel(), BLOCK=_BLOCK)
    return out


@triton.jit
def _quick_gelu(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x + at, mask=inside, other=0.0)
    wide = (value.to(tl.float32) * 1.702).to(value.dtype).to(tl.float32)
    opened = (1 / (1 + tl.exp(-wide))).to(value.dtype).to(tl.float32)
    tl.store(out + at, (value.to(tl.float32) * opened).to(value.dtype), mask=inside)


def quick_gelu(x: Tensor) -> Tensor:
    """x times the sigmoid of 1.702 x."""
    x = x.contiguous()
    out = torch.empty_like(x)
    _quick_gelu[(triton.cdiv(x.numel(), _BLOCK),)](x, out, x.numel(), BLOCK=_BLOCK)
    return out
