"""Attention rollout: the product of all layers' attention matrices, each with an identity for the residual path."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.trace import Trace


def attention_rollout(trace: Trace, tokens: slice, settings: Settings) -> Tensor:
    """Row e(t) of the product over layers of rownorm(mean over heads of attention + identity).

    Only some rows of the product are needed, so they are multiplied from the last layer to the first. Only a few rows
    of one layer's matrix are in memory at a time.
    """
    replay = trace.replay
    rows = F.one_hot(replay.emitting[tokens], replay.length).float()
    layers = replay.attentions(range(replay.depth))
    for layer in reversed(range(replay.depth)):
        rows = layers[layer].propagate(rows, _with_residual)
    return rows[:, replay.visual]


def _with_residual(attention: Tensor, positions: Tensor) -> Tensor:
    mixed = attention + F.one_hot(positions, attention.shape[-1])
    return torch.as_tensor(mixed / mixed.sum(-1, keepdim=True))


register_inside(
    name="attention_rollout",
    title="Attention rollout",
    paper="Abnar and Zuidema, Quantifying Attention Flow in Transformers, ACL 2020",
    settings=Settings,
    scores=attention_rollout,
    reads="queries and keys of every layer",
    cost="one more forward pass",
    memory="queries and keys of all layers",
    unit="attention flow",
)
