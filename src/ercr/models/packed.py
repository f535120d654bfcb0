"""Attention over samples packed into one sequence, and vision towers of few kernels; used only for compile=True.

Vision towers with dynamic resolution pack all pictures into one sequence in which each picture attends to itself.
transformers' code calls attention once per picture and reads the lengths from the device before every block. Here one
kernel serves all pictures. This affects the last digits, and in half precision it can change words.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ercr.models.steps import steps_for

_NAME = "ercr_flash_packed"  # transformers passes the edges of pictures only to functions with "flash" in their names
_TOLERANCE = 0.05  # of the largest number of a state: rounding in half precision stays below, another equation does not
_FEWEST_BLOCKS = 4  # a shorter list of modules is not what a tower computes with


def attend_packed(
    query: Tensor, key: Tensor, value: Tensor, edges: Tensor, lengths: Sequence[int], scale: float, causal: bool
) -> Tensor:
    """Attention within samples that stand one behind the other: [T, heads, d] each to [T, heads * d].

    `edges` [B + 1] lie on the device, `lengths` are known to the host. In half precision on a GPU one kernel serves all
    samples, whatever their lengths; it needs only the longest.
    """
    if has_flash(query):
        return flash(query, key, value, edges, max(lengths), scale, causal).flatten(1)
    found = []
    for own in zip(*(torch.split(part, list(lengths)) for part in (query, key, value)), strict=True):
        q, k, v = (part.transpose(0, 1)[None] for part in own)
        found.append(F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)[0])
    return torch.cat([part.transpose(0, 1).flatten(1) for part in found])


def has_flash(states: Tensor) -> bool:
    """Whether torch's kernel for packed samples takes these states."""
    return states.is_cuda and states.dtype in (torch.float16, torch.bfloat16)


def flash(query: Tensor, key: Tensor, value: Tensor, edges: Tensor, longest: int, scale: float, causal: bool) -> Tensor:
    """The kernel itself: [T, heads, d] to [T, heads, d]."""
    found: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, edges, edges, longest, longest, 0.0, causal, False, scale=scale
    )[0]
    return found


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **given: Any) -> tuple[Tensor, None]:
    """What a tower calls with all its pictures [1, heads, T, d]; the result is [1, T, heads, d]."""
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    edges, longest = given["cu_seq_lens_q"], given["max_length_q"]
    return flash(q, k, v, edges, longest, given["scaling"], causal=False)[None], None


def fit_tower(tower: nn.Module, half: bool, fuse: bool) -> None:
    """Let the pictures of a tower share a kernel, which takes half precision, and compile its blocks if `fuse`.

    The tower must be a replica.
    """
    blocks = _blocks(tower)
    if blocks is None:
        return
    attention = [module for block in blocks for module in block.modules() if hasattr(module, "is_causal")]
    if half and hasattr(tower, "patch_embed") and all(hasattr(module, "qkv") for module in attention):
        _pack(tower)
        if not fuse:
            _turn_at_once(attention)
    for module in tower.modules():
        if half and type(module) is nn.Conv2d and _is_product(module):
            vars(module)["forward"] = partial(_product, module)
        if not fuse and type(module).__name__ == "QuickGELUActivation":
            vars(module)["forward"] = steps_for(next(tower.parameters())).quick_gelu
    for block in blocks if fuse else ():
        block.compile(dynamic=True)


def packs(tower: nn.Module) -> bool:
    """Whether a tower was made to attend to all pictures in one call, and has to be told the longest."""
    return bool(getattr(getattr(tower, "config", None), "_attn_implementation", None) == _NAME)


def _pack(tower: Any) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(_NAME, _attend)
    config = copy(tower.config)  # shared with the user's model
    config._attn_implementation_internal = _NAME
    for module in tower.modules():
        if getattr(module, "config", None) is tower.config and module is not tower:
            module.config = config
    tower.config = config
    tower.patch_embed.forward = partial(_patches, tower.patch_embed)


def _turn_at_once(modules: Sequence[Any]) -> None:
    """Let attention modules turn queries and keys in one kernel, if that gives what they give."""
    if _turns_alike(modules[0]):
        for module in modules:
            module.forward = partial(_attend_turned, module, steps_for(module.qkv.weight))


def _attend_turned(
    module: Any,
    steps: Any,
    hidden_states: Tensor,
    cu_seqlens: Tensor,
    position_embeddings: tuple[Tensor, Tensor],
    max_seqlen: int,
    **_: Any,
) -> Tensor:
    """What an attention module of a tower does with all its pictures [T, d]."""
    query, key, value = module.qkv(hidden_states).view(len(hidden_states), 3, module.num_heads, -1).unbind(1)
    query, key = steps.turn(query, key, value, *position_embeddings, None, 0.0, None, None)
    return module.proj(flash(query, key, value, cu_seqlens, max_seqlen, module.scaling, causal=False).flatten(1))  # type: ignore[no-any-return]


@torch.no_grad()
def _turns_alike(module: Any) -> bool:
    """Whether both give the same for a few made-up states: classes may share names and not equations."""
    like = module.qkv.weight
    made = torch.Generator().manual_seed(0)
    states = torch.randn(12, like.shape[1], generator=made).to(like)
    angles = torch.randn(12, like.shape[0] // (3 * module.num_heads), generator=made).to(like.device)
    edges = torch.tensor([0, 5, 12], dtype=torch.int32, device=like.device)
    given: dict[str, Any] = {"cu_seqlens": edges, "position_embeddings": (angles.cos(), angles.sin()), "max_seqlen": 7}
    try:
        with torch.cuda.device_of(like):  # type: ignore[no-untyped-call]
            own, ours = module(states, **given), _attend_turned(module, steps_for(like), states, **given)
    except (RuntimeError, ValueError, TypeError, AttributeError):
        return False
    return bool((own - ours).abs().max() <= _TOLERANCE * own.abs().max())


def _patches(module: Any, hidden_states: Tensor) -> Tensor:
    """The patch convolution as one matrix product, which is equivalent because patches do not overlap, and faster."""
    weight, bias = module.proj.weight, module.proj.bias
    return F.linear(hidden_states.to(weight.dtype), weight.flatten(1), bias)


def _is_product(module: nn.Conv2d) -> bool:
    """Whether a convolution's windows do not overlap and cover every pixel."""
    plain = module.groups == 1 and set(module.dilation) == {1} and module.padding in ((0, 0), "valid")
    return plain and module.kernel_size == module.stride


def _product(module: nn.Conv2d, pictures: Tensor) -> Tensor:
    """Such a convolution of pictures [B, c, H, W] as one matrix product, which is faster for large batches."""
    (count, channels), (high, wide) = pictures.shape[:2], module.kernel_size
    rows, columns = pictures.shape[2] // high, pictures.shape[3] // wide
    windows = pictures[:, :, : rows * high, : columns * wide].reshape(count, channels, rows, high, columns, wide)
    flat = windows.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels * high * wide)
    found = F.linear(flat.to(module.weight.dtype), module.weight.flatten(1), module.bias)
    return found.view(count, rows, columns, -1).permute(0, 3, 1, 2)


def _blocks(tower: nn.Module) -> list[Any] | None:
    """The tower's blocks, if it is a stack of equal ones."""
    lists = [module for module in tower.modules() if isinstance(module, nn.ModuleList)]
    longest = max(lists, key=len, default=None)
    if longest is None or len(longest) < _FEWEST_BLOCKS or len({type(block) for block in longest}) > 1:
        return None
    return list(longest)
