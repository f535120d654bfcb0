"""A decoder's attention: reads queries, keys and values of each block, or replaces its attention function.

transformers finds an attention function by the name in a block's configuration. This module registers the name `ercr`
and gives it to the blocks of one run's replica; the registered function calls what that run has set for the block. The
user's model and all other attention functions stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ercr.errors import InputError, UnsupportedModel
from ercr.models.base import Adapter
from ercr.models.decoder import attention_of, output_projection

_CHUNK_ENTRIES = 2**26  # attention probabilities in memory at once: 256 MB of float32


@dataclass(frozen=True)
class Attention:
    """One block's attention: queries [H, L, c] after rotation, keys and values [G, L, c] of G key-value heads."""

    module: Any
    query: Tensor
    key: Tensor
    value: Tensor
    scaling: float
    window: int | None  # sliding window, in positions
    mask: Tensor | None = (
        None  # [L, L] what the block was given: allowed pairs, or numbers that are added; None is causal
    )
    cap: float | None = None  # scores are bent below this number

    def to(self, device: torch.device) -> Attention:
        """The same on another device, because blocks of a large model may be on several."""
        mask = None if self.mask is None else self.mask.to(device)
        query, key, value = (part.to(device) for part in (self.query, self.key, self.value))
        return replace(self, query=query, key=key, value=value, mask=mask)

    @property
    def heads(self) -> int:
        return self.query.shape[0]

    def masked(self, scores: Tensor, positions: Tensor) -> Tensor:
        """Scores [H, R, L] of the queries at some positions, with -inf where they attend to nothing."""
        if self.mask is None:
            distance = positions[:, None] - torch.arange(self.key.shape[1], device=positions.device)
            allowed = (distance >= 0) if self.window is None else (distance >= 0) & (distance < self.window)
        elif self.mask.dtype == torch.bool:
            allowed = self.mask[positions]
        else:
            return scores + self.mask[positions].to(scores)
        return scores.masked_fill(~allowed, -torch.inf)

    def probabilities(self, positions: Tensor, queries: Tensor | None = None, keys: Tensor | None = None) -> Tensor:
        """Softmax rows [H, R, L] in float32 of the queries at some positions."""
        query = (self.query if queries is None else queries)[:, positions]
        key = repeat_heads(self.key if keys is None else keys, self.heads)
        precision = torch.promote_types(query.dtype, torch.float32)
        scores = (query @ key.mT).to(precision) * self.scaling
        if self.cap is not None:
            scores = torch.tanh(scores / self.cap) * self.cap
        return self.masked(scores, positions).softmax(-1)

    def mean_rows(self, positions: Tensor) -> Tensor:
        """Rows [R, L] averaged over heads."""
        return torch.cat([self.probabilities(part).mean(0) for part in self._chunks(positions)])

    def propagate(self, weights: Tensor, mix: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """The product of weights [S, L] and the matrix of the rows `mix(mean over heads, positions)`, in chunks."""
        everywhere = torch.arange(self.key.shape[1], device=weights.device)
        total = torch.zeros_like(weights)
        for part in self._chunks(everywhere):
            rows = mix(self.probabilities(part).mean(0), part)
            total += weights[:, part] @ rows.to(weights.dtype)
        return total

    @torch.no_grad()
    def value_to_value(self, positions: Tensor) -> Tensor:
        """The attention output [R, d] at some positions if values were used as queries and keys, too."""
        project = output_projection(self.module)
        if project is None:
            raise UnsupportedModel(f"{type(self.module).__name__} has no output projection that could be read.")
        values = repeat_heads(self.value, self.heads)
        parts = []
        for part in self._chunks(positions):
            weights = self.probabilities(part, values, self.value).to(values.dtype)
            mixed = (weights @ values).transpose(0, 1).flatten(1)
            parts.append(project(mixed).to(values.device))
        return torch.cat(parts)

    def _chunks(self, positions: Tensor) -> tuple[Tensor, ...]:
        step = max(1, _CHUNK_ENTRIES // (self.heads * self.key.shape[1]))
        return tuple(positions[start : start + step] for start in range(0, len(positions), step))


def repeat_heads(states: Tensor, heads: int) -> Tensor:
    """Key-value heads [G, L, c], repeated for the query heads of their group [H, L, c]."""
    return states.repeat_interleave(heads // states.shape[0], dim=0)


Backend = Callable[..., tuple[Tensor, Tensor | None]]


class _RenamedConfig:
    """A block's configuration with another name for its attention function."""

    _attn_implementation = "ercr"

    def __init__(self, config: Any) -> None:
        self.original = config

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["original"], name)


def register() -> None:
    """Register the name `ercr` with transformers, for good, because runs in other threads may be using it."""
    from transformers import AttentionInterface

    AttentionInterface.register(_RenamedConfig._attn_implementation, _dispatch)


def _dispatch(module: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    result: tuple[Tensor, Tensor | None] = vars(module)["ercr_attention"](module, *args, **kwargs)
    return result


def replace_attention(own: Adapter, wrap: Callable[[int, Backend], Backend]) -> list[int]:
    """Replace the attention function of every block by `wrap(block, function)`; the model must be a replica.

    Returns the blocks that have one: others mix positions by convolutions or linear attention.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as functions

    register()
    replaced = []
    for index, block in enumerate(own.blocks):
        attention: Any = attention_of(block)
        if attention is None:
            continue
        found = functions.get(attention.config._attn_implementation or "eager")
        # not registered as submodules, because that would list the same weights twice
        vars(attention).update(ercr_original=copy(attention), ercr_attention=wrap(index, _original(found)))
        attention.config = _RenamedConfig(attention.config)
        replaced.append(index)
    return replaced


def _original(found: Any) -> Backend:
    """A block's own attention function; without a name in the table it is the eager one of its file."""

    def function(module: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        chosen = found or sys.modules[type(module).__module__].eager_attention_forward
        # the module with the original configuration, because some backends read their name there
        result: tuple[Tensor, Tensor | None] = chosen(vars(module)["ercr_original"], *args, **kwargs)
        return result

    return function


def observe(record: Callable[[int, Attention], None]) -> Callable[[int, Backend], Backend]:
    """A wrapper that passes each block's attention (of a batch of one) to `record` and calls the original backend."""

    def wrap(index: int, original: Backend) -> Backend:
        def function(
            module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, Tensor | None]:
            record(index, describe(module, query, key, value, mask, kwargs))
            return original(module, query, key, value, mask, *args, **kwargs)

        return function

    return wrap


def describe(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, options: dict[str, Any]) -> Attention:
    """A block's attention from the arguments of its attention function, for a batch of one without a cache."""
    if mask is not None and not (isinstance(mask, Tensor) and mask.ndim in (2, 4)):
        raise InputError(
            "This attention implementation hides its mask: load the model with attn_implementation='sdpa'."
        )
    # a mask over positions [1, L] says which are padding, and nothing is padded here
    pairs = mask[0, 0, :, : key.shape[2]] if mask is not None and mask.ndim == 4 else None
    scaling = options.get("scaling")
    scaling = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    cap = options.get("softcap")
    return Attention(module, query[0], key[0], value[0], scaling, options.get("sliding_window"), pairs, cap)
