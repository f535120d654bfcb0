"""Seeing a decoder's attention without changing it: queries, keys and values as each block hands them over.

transformers looks an attention function up by the name in a block's configuration. One more name stands in its table,
and the blocks of a run's own modules are given it; it hands a call on to what that run put in place. Every other
module keeps the backend it had, the user's model and the function behind every other name included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ercr.models.base import Adapter

_CHUNK_ENTRIES = 2**26  # attention probabilities held at once: 256 MB of float32


@dataclass(frozen=True)
class Attention:
    """One block's attention: rotated queries [H, L, c], keys and values [G, L, c] of G key-value heads."""

    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    scaling: float
    window: int | None  # sliding window, in positions

    def to(self, device: torch.device) -> Attention:
        """The same on another device; blocks of a large model may live on several."""
        return replace(self, query=self.query.to(device), key=self.key.to(device), value=self.value.to(device))

    @property
    def heads(self) -> int:
        return self.query.shape[0]

    def allowed(self, positions: Tensor) -> Tensor:
        """Which keys the queries at some positions may see: [R, L], causal and within the sliding window."""
        keys = torch.arange(self.key.shape[1], device=positions.device)
        distance = positions[:, None] - keys[None]
        seen = distance >= 0
        return seen if self.window is None else seen & (distance < self.window)

    def probabilities(self, positions: Tensor, queries: Tensor | None = None, keys: Tensor | None = None) -> Tensor:
        """Softmax rows [H, R, L] in float32 of the queries at some positions."""
        query = (self.query if queries is None else queries)[:, positions]
        key = repeat_heads(self.key if keys is None else keys, self.heads)
        precision = torch.promote_types(query.dtype, torch.float32)
        scores = (query @ key.mT).to(precision) * self.scaling
        return scores.masked_fill(~self.allowed(positions), -torch.inf).softmax(-1)

    def mean_rows(self, positions: Tensor) -> Tensor:
        """Rows [R, L] averaged over heads."""
        return torch.cat([self.probabilities(part).mean(0) for part in self._chunks(positions)])

    def carried_back(self, weights: Tensor, mix: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """weights [S, L] times a matrix whose rows `mix(mean rows, positions)` makes, a few rows at a time."""
        everywhere = torch.arange(self.key.shape[1], device=weights.device)
        total = torch.zeros_like(weights)
        for part in self._chunks(everywhere):
            rows = mix(self.probabilities(part).mean(0), part)
            total += weights[:, part] @ rows.to(weights.dtype)
        return total

    @torch.no_grad()
    def value_to_value(self, positions: Tensor) -> Tensor:
        """What the block would add [R, d] at some positions if values took the place of queries and keys."""
        values = repeat_heads(self.value, self.heads)
        parts = []
        for part in self._chunks(positions):
            weights = self.probabilities(part, values, self.value).to(values.dtype)
            mixed = (weights @ values).transpose(0, 1).flatten(1)
            parts.append(self.module.o_proj(mixed).to(values.device))
        return torch.cat(parts)

    def _chunks(self, positions: Tensor) -> tuple[Tensor, ...]:
        step = max(1, _CHUNK_ENTRIES // (self.heads * self.key.shape[1]))
        return tuple(positions[start : start + step] for start in range(0, len(positions), step))


def repeat_heads(states: Tensor, heads: int) -> Tensor:
    """Key-value heads [G, L, c] repeated for their groups of query heads [H, L, c]."""
    return states.repeat_interleave(heads // states.shape[0], dim=0)


Backend = Callable[..., tuple[Tensor, Tensor | None]]


class _Renamed:
    """A block's configuration in all but the name of its attention function."""

    _attn_implementation = "ercr"

    def __init__(self, config: Any) -> None:
        self.behind = config

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["behind"], name)


def register() -> None:
    """Add our name to transformers' table of attention functions. It stays: models in other threads may need it."""
    from transformers import AttentionInterface

    AttentionInterface.register(_Renamed._attn_implementation, _hand_on)


def _hand_on(module: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    result: tuple[Tensor, Tensor | None] = vars(module)["ercr_attention"](module, *args, **kwargs)
    return result


def attend_by(own: Adapter, wrap: Callable[[Backend], Backend]) -> None:
    """Give the decoder's blocks `wrap(function)` for their attention function; `own` has modules of its own."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    register()
    found = functions.get(own.config.get_text_config()._attn_implementation or "eager")

    def original(module: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        function = found or sys.modules[type(module).__module__].eager_attention_forward
        # some backends read their own name in the block's configuration
        result: tuple[Tensor, Tensor | None] = function(vars(module)["ercr_stock"], *args, **kwargs)
        return result

    for block in own.blocks:
        attention: Any = block.self_attn
        # not as submodules: they are the same weights once more
        vars(attention).update(ercr_stock=copy(attention), ercr_attention=wrap(original))
        attention.config = _Renamed(attention.config)


def observe(seen: Callable[[int, Attention], None]) -> Callable[[Backend], Backend]:
    """A wrapper that shows each block's attention (of a batch of one) and leaves the computation to the backend."""

    def wrap(original: Backend) -> Backend:
        def function(
            module: Any, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, Tensor | None]:
            seen(int(module.layer_idx), describe(module, query, key, value, kwargs))
            return original(module, query, key, value, *args, **kwargs)

        return function

    return wrap


def describe(module: Any, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]) -> Attention:
    scaling = options.get("scaling")
    scaling = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    return Attention(module, query[0], key[0], value[0], scaling, options.get("sliding_window"))
