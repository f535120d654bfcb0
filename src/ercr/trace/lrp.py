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

from ercr.errors import UnsupportedModel
from ercr.models.base import Adapter
from ercr.models.decoder import mlp_of
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
    """Patch the decoder's norms, MLPs and attention with a rule; the model of `own` must be a replica."""
    if len(replace_attention(own, _attention_rule(rule))) != len(own.blocks):
        raise UnsupportedModel(
            "This model has blocks of linear attention or convolutions, for which relevance propagation "
            "has no rule: use another method."
        )
    for block in own.blocks:
        mlp = mlp_of(block)
        forward = None if mlp is None else _patched_mlp(mlp, rule)
        if mlp is None or forward is None:
            raise UnsupportedModel(
                f"Relevance propagation has no rule for the {type(mlp or block).__name__} of this model: "
                f"use another method."
            )
        mlp.forward = forward
    for module in own.language_model.modules():
        if type(module).__name__.endswith("Norm"):
            module.forward = _patched_norm(module)


def _patched_norm(module: nn.Module) -> Callable[..., Tensor]:
    """The norm with its scale as a constant in the backward pass, whatever it does with its weight.

    What a norm does to a state of one length is read from its answer to a state of ones: some multiply by their weight,
    some by one more than it.
    """
    stated = (getattr(module, name, None) for name in ("variance_epsilon", "eps", "epsilon"))
    eps = next((float(value) for value in stated if isinstance(value, int | float)), None)
    if eps is None:
        raise UnsupportedModel(f"Relevance propagation has no rule for {type(module).__name__}: use another method.")
    centred = isinstance(module, nn.LayerNorm) or "LayerNorm" in type(module).__name__
    return partial(_norm, module, type(module).forward, eps, centred and _centres(module))


def _centres(module: nn.Module) -> bool:
    """Whether a norm subtracts the mean: then a constant state becomes its bias, or zero."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 1:
        return False
    with torch.no_grad():
        ones = type(module).forward(module, torch.ones(1, len(weight), device=weight.device, dtype=weight.dtype))
        bias = getattr(module, "bias", None)
        return bool((ones - (0 if bias is None else bias)).abs().max() < 1e-3 * weight.abs().max())


def _norm(module: Any, original: Callable[..., Tensor], eps: float, centred: bool, states: Tensor) -> Tensor:
    precise = states.to(torch.promote_types(states.dtype, torch.float32))
    if centred:
        precise = precise - precise.mean(-1, keepdim=True)
    scale = torch.rsqrt(precise.pow(2).mean(-1, keepdim=True) + eps).detach()
    with torch.no_grad():
        out = original(module, states)
        unit = (precise * scale).to(states.dtype)
        # where a state is 0 its gain does not matter
        offset = getattr(module, "bias", None) if centred else None
        gain = (out - (0 if offset is None else offset)) / torch.where(unit == 0, 1, unit)
    through = (precise * scale).to(states.dtype) * gain
    return through + (out - through).detach()


def _patched_mlp(module: Any, rule: Rule) -> Callable[..., Tensor] | None:
    """An MLP with a rule: gated in two projections or in one, or plain."""
    activation = next((f for name in ("act_fn", "activation_fn", "act") if (f := getattr(module, name, None))), None)
    if activation is None or hasattr(module, "experts"):
        return None
    parts = dict(module.named_children())
    if {"gate_proj", "up_proj", "down_proj"} <= set(parts):
        split = _two_projections
    elif {"w1", "w2", "w3"} <= set(parts):
        split = _numbered_projections
    elif {"gate_up_proj", "down_proj"} <= set(parts):
        split = _joint_projection
    elif {"fc1", "fc2"} <= set(parts):
        return partial(_plain_mlp, module, activation)
    else:
        return None
    return partial(_gated, module, split, activation, rule)


Split = Callable[[Any, Tensor], tuple[Tensor, Tensor, nn.Module]]


def _two_projections(module: Any, states: Tensor) -> tuple[Tensor, Tensor, nn.Module]:
    return module.gate_proj(states), module.up_proj(states), module.down_proj


def _numbered_projections(module: Any, states: Tensor) -> tuple[Tensor, Tensor, nn.Module]:
    return module.w1(states), module.w3(states), module.w2


def _joint_projection(module: Any, states: Tensor) -> tuple[Tensor, Tensor, nn.Module]:
    gate, up = module.gate_up_proj(states).chunk(2, dim=-1)
    return gate, up, module.down_proj


def _gated(module: Any, split: Split, activation: Callable[[Tensor], Tensor], rule: Rule, states: Tensor) -> Tensor:
    gate, up, down = split(module, states)
    if rule == "attn":
        out: Tensor = down(divide_gradient(identity_rule(activation, gate) * up, 2))
    else:
        out = down(activation(gate).detach() * up)
    return out


def _plain_mlp(module: Any, activation: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """An MLP without a gate: in both rules its activation keeps the relevance."""
    out: Tensor = module.fc2(identity_rule(activation, module.fc1(states)))
    return out


def _attention_rule(rule: Rule) -> Callable[[int, Backend], Backend]:
    def wrap(index: int, original: Backend) -> Backend:
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
