"""The most probable tokens at text positions: ranked lists and probabilities over the whole vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ercr.models.base import Adapter

_HEAD_ROWS = 8192  # rows of the head in float32 at once
_MM_HAS_OUT_DTYPE = hasattr(torch.ops.aten.mm, "dtype")  # whether mm can return float32 for half-precision inputs
_RANK_ENTRIES = 2**23  # logits that are computed and ranked at once; ranking makes several 8-byte copies of them


def vocabulary_size(adapter: Adapter) -> int:
    return adapter.vocabulary


def logits(adapter: Adapter, states: Tensor) -> Tensor:
    """Vocabulary-wide logits [R, V] in float32 or better, whatever the model's precision.

    Half-precision logits have many ties near the top, whose order would be arbitrary. A GPU sums such products in
    float32 and can return them so; otherwise the head is converted a few thousand rows at a time, so that there is
    never a float32 copy of the whole matrix.
    """
    head = adapter.head
    weight = getattr(head, "weight", None)
    wide = weight is not None and torch.promote_types(weight.dtype, torch.float32) == weight.dtype
    if wide or not isinstance(head, nn.Linear) or weight is None or weight.device.type == "meta":
        out: Tensor = head(states)
        return out.to(torch.promote_types(out.dtype, torch.float32))
    bias: Tensor | None = getattr(head, "bias", None)
    if weight.is_cuda and states.dtype == weight.dtype and bias is None and _MM_HAS_OUT_DTYPE:
        return torch.mm(states.to(weight.device), weight.T, out_dtype=torch.float32)
    precise = states.to(weight.device, torch.float32)
    parts = [
        F.linear(precise, part.float(), None if bias is None else bias[start : start + len(part)].float())
        for start, part in zip(range(0, len(weight), _HEAD_ROWS), weight.split(_HEAD_ROWS), strict=True)
    ]
    return torch.cat(parts, dim=-1)


def ranked(adapter: Adapter, states: Tensor, targets: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """The top k tokens [R, k], their probabilities, and log-probabilities [R] of the targets; ties: lower id first."""
    parts = [
        ranked_scores(scores, targets[rows].to(scores.device), depth) for rows, scores in _by_parts(adapter, states)
    ]
    joined = (part[0] if len(part) == 1 else torch.cat(part) for part in zip(*parts, strict=True))
    return tuple(part.to(states.device) for part in joined)  # type: ignore[return-value]


def ranked_scores(scores: Tensor, targets: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same from the model's own logits [R, V]."""
    if scores.device.type == "mps":  # its integers are not wide enough to rank in the order below
        scores, targets = scores.cpu(), targets.cpu()
    top = stable_top(scores, min(depth, scores.shape[-1]))
    logs = scores.log_softmax(-1)
    return top, logs.gather(1, top).exp(), logs.gather(1, targets[:, None])[:, 0]


def own_log_probabilities(adapter: Adapter, states: Tensor, targets: Tensor) -> Tensor:
    """Log-probabilities [R] of the targets alone."""
    parts = [
        scores.log_softmax(-1).gather(1, targets[rows, None].to(scores.device))[:, 0]
        for rows, scores in _by_parts(adapter, states)
    ]
    return torch.cat(parts).to(states.device)


def entropies(adapter: Adapter, states: Tensor) -> Tensor:
    """The entropy [R] of what the model predicts at some positions, in nats."""
    logs = (scores.log_softmax(-1) for _, scores in _by_parts(adapter, states))
    return torch.cat([-(part.exp() * part).sum(-1) for part in logs]).to(states.device)


def _by_parts(adapter: Adapter, states: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """A few rows of the states at a time, with the model's own logits in float32."""
    vocabulary = vocabulary_size(adapter)
    step = max(1, _RANK_ENTRIES // vocabulary)
    for start in range(0, max(len(states), 1), step):
        rows = slice(start, start + step)
        yield rows, adapter.adjust(logits(adapter, states[rows])[:, :vocabulary].float())


def stable_top(scores: Tensor, depth: int) -> Tensor:
    """Indices of the largest float32 values [R, k]; of equal values the lower index first, unlike topk."""
    bits = scores.view(torch.int32)
    ordered = torch.where(bits >= 0, bits, -(2**31) - bits)  # floats as integers in the same order
    return torch.add(_countdown(scores.shape[-1], scores.device), ordered, alpha=2**32).topk(depth, dim=-1).indices


@lru_cache(maxsize=8)
def _countdown(count: int, device: torch.device) -> Tensor:
    return -torch.arange(count, device=device)
