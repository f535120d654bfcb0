"""Layer-wise relevance propagation as modified gradients: the rules of AttnLRP and CP-LRP.

A rule keeps every value of the forward pass and changes only the gradients (Achtibat et al., AttnLRP, ICML 2024; Ali
et al., XAI for Transformers, ICML 2022). It consists of ordinary tensor operations, so one backward pass serves many
target tokens. Rules are applied to a replica of the model and never to the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ercr.models.base import Adapter
from ercr.trace.attention import Backend, replace_attention

Rule = Literal["attn", "cp"]
_EPS = 1e-10


def divide_gradient(value: Tensor, factor: float) -> Tensor:
    """The same value with its gradient divided by `factor` (the uniform rule for products)."""
    part = value / factor
    return part + (value - part).detach()


def identity_rule(function: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """function(value) with the gradient function(value) / value, which keeps the relevance."""
    out = function(value)
    through = value * (out / (value + _EPS)).detach()
    return through + (out - through).detach()


def apply_rule(own: Adapter, rule: Rule) -> None:
    """Patch the decoder's norms, gated MLPs and attention with a rule; the model of `own` must be a replica."""
    replace_attention(own, _attention_rule(rule))
    for module in own.model.model.language_model.modules():
        forward = _patched_forward(module, rule)
        if forward is not None:
            module.forward = forward


def _patched_forward(module: nn.Module, rule: Rule) -> Callable[..., Tensor] | None:
    if hasattr(module, "variance_epsilon"):
        return partial(_norm, module)
    if hasattr(module, "gate_proj"):
        return partial(_mlp_attn if rule == "attn" else _mlp_cp, module)
    return None


def _norm(module: Any, states: Tensor) -> Tensor:
    """RMS norm whose scale is a constant in the backward pass."""
    precise = states.to(torch.promote_types(states.dtype, torch.float32))
    scale = torch.rsqrt(precise.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
    out: Tensor = module.weight * (precise * scale.detach()).to(states.dtype)
    return out


def _mlp_attn(module: Any, states: Tensor) -> Tensor:
    gate = identity_rule(module.act_fn, module.gate_proj(states))
    out: Tensor = module.down_proj(divide_gradient(gate * module.up_proj(states), 2))
    return out


def _mlp_cp(module: Any, states: Tensor) -> Tensor:
    gate = module.act_fn(module.gate_proj(states)).detach()
    out: Tensor = module.down_proj(gate * module.up_proj(states))
    return out


def _attention_rule(rule: Rule) -> Callable[[Backend], Backend]:
    def wrap(original: Backend) -> Backend:
        def function(
            module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, Tensor | None]:
            if rule == "attn":
                query, key, value = divide_gradient(query, 4), divide_gradient(key, 4), divide_gradient(value, 2)
            else:
                query, key = query.detach(), key.detach()
            return original(module, query, key, value, *args, **kwargs)

        return function

    return wrap
