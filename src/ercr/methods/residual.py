"""Subtracts what a context map explains: the least-squares fit that ERCR and TAM share."""

from __future__ import annotations

from torch import Tensor


def residualise(maps: Tensor, context: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The residual maps - beta * context and beta [R], the least-squares fit (eqs. 16 and 17); not clipped."""
    overlap = (maps * context).sum((-2, -1))
    beta = overlap / ((context * context).sum((-2, -1)) + eps)
    return maps - beta[:, None, None] * context, beta


def weighted_context(weights: Tensor, maps: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """alpha, the weights [R, S] normalised per row, and the context maps [R, h, w], the weighted means of `maps`."""
    alpha = weights / (weights.sum(-1, keepdim=True) + eps)
    return alpha, (alpha.to(maps.dtype) @ maps.flatten(1)).view(-1, *maps.shape[1:])
