"""Rank-biased overlap of top lists (Webber et al. 2010), for all pairs of tokens at once."""

from __future__ import annotations

import torch
from torch import Tensor

# table entries of one chunk: bounds the memory whatever the length of the answer
_CHUNK_ENTRIES = 2**25


def rank_biased_overlap(targets: Tensor, others: Tensor, p: float, vocabulary: int) -> Tensor:
    """Truncated RBO [R, S] of ranked lists [R, k] and [S, k]; not renormalised.

    A vocabulary item at ranks a and b (from 0) counts in every prefix longer than max(a, b), so it contributes a
    tail sum that one table look-up gives. Chunks bound the table of ranks and the pairs x depth look-ups.
    """
    depth = targets.shape[1]
    tails = tail_weights(depth, p, targets.device)
    rank = torch.arange(depth, device=targets.device, dtype=torch.uint8)
    step = max(1, _CHUNK_ENTRIES // max(vocabulary, others.numel()))
    parts = []
    for start in range(0, len(targets), step):
        chunk = targets[start : start + step]
        empty = torch.full((len(chunk), vocabulary), depth, dtype=torch.uint8, device=targets.device)
        table = empty.scatter(1, chunk, rank.expand_as(chunk))
        found = table[:, others]  # [c, S, k]: the rank in the target's list of each item of the other lists
        parts.append(tails[torch.maximum(found, rank).long()].sum(-1))
    return torch.cat(parts) if parts else tails.new_zeros(0, len(others))


def tail_weights(depth: int, p: float, device: torch.device) -> Tensor:
    """sum over d > rank of (1 - p) p^(d-1) / d, for rank 0..depth-1, then 0 for items that are absent."""
    d = torch.arange(1, depth + 1, dtype=torch.float64)
    weights = (1 - p) * p ** (d - 1) / d
    tails = weights.flip(0).cumsum(0).flip(0)
    return torch.cat([tails, tails.new_zeros(1)]).to(device, torch.float32)
