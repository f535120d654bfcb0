"""Rank-biased overlap of top lists (Webber et al. 2010), for all pairs of tokens at once."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

# table entries of one chunk, so that memory is bounded for any length of answer
_CHUNK_ENTRIES = 2**24


def rank_biased_overlap(targets: Tensor, others: Tensor, p: float, vocabulary: int) -> Tensor:
    """Truncated RBO [R, S] of ranked lists [R, k] and [S, k]; not renormalised.

    A token at ranks a and b (from 0) counts in every prefix longer than max(a, b), so it contributes the smaller of two
    tail sums. A table indexed by token id gives those of the target; chunks bound its size and that of the look-ups.
    """
    tails = tail_weights(targets.shape[1], p, targets.device)
    step = max(1, _CHUNK_ENTRIES // max(vocabulary, others.numel()))
    parts = []
    for start in range(0, len(targets), step):
        chunk = targets[start : start + step]
        table = tails.new_zeros(len(chunk), vocabulary).scatter(1, chunk, tails.expand_as(chunk))
        # [c, S, k]: the tail sum in the target's list of each token of the other lists
        found = table.index_select(1, others.flatten()).view(len(chunk), *others.shape)
        parts.append(torch.minimum(found, tails).sum(-1))
    return parts[0] if len(parts) == 1 else torch.cat([tails.new_zeros(0, len(others)), *parts])


@lru_cache(maxsize=64)
def tail_weights(depth: int, p: float, device: torch.device) -> Tensor:
    """sum over d > rank of (1 - p) p^(d-1) / d, for rank 0..depth-1; decreasing."""
    d = torch.arange(1, depth + 1, dtype=torch.float64)
    weights = (1 - p) * p ** (d - 1) / d
    return weights.flip(0).cumsum(0).flip(0).to(device, torch.float32)
