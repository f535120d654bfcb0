"""Gradient rollout: attention times its gradient, with low entries dropped, multiplied over all layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.errors import InputError
from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.trace import Trace


@dataclass(frozen=True)
class GradRolloutSettings(Settings):
    discard: float = 0.9  # share of each layer's entries that is dropped, the lowest first

    def __post_init__(self) -> None:
        if not 0 <= self.discard < 1:
            raise InputError(f"discard must be at least 0 and below 1, not {self.discard}.")


def grad_rollout(trace: Trace, tokens: slice, settings: GradRolloutSettings) -> Tensor:
    """Row e(t) of the product over layers of rownorm((F + I) / 2), F = ReLU(mean over heads of attn x gradient)."""
    replay = trace.replay
    maps = []
    for part, weights, gradients in replay.attention_gradients(tokens):
        rows = F.one_hot(replay.emitting[part], replay.length).to(weights[0].dtype)[:, None]  # [R, 1, L]
        for attention, gradient in zip(reversed(weights), reversed(gradients), strict=True):
            rows = rows @ layer_flow(attention, gradient, settings.discard)
        maps.append(rows[:, 0, replay.visual])
    return torch.cat(maps)


def layer_flow(attention: Tensor, gradient: Tensor, discard: float) -> Tensor:
    """One layer's matrix [R, L, L] from attention [H, L, L] and gradients [R, H, L, L]."""
    flow = (attention * gradient).mean(1).relu()
    entries = flow.flatten(1)
    dropped = int(entries.shape[1] * discard)
    if dropped:
        limit = entries.kthvalue(dropped, dim=1).values
        flow = flow.masked_fill(flow <= limit[:, None, None], 0.0)
    flow = (flow + torch.eye(flow.shape[-1], device=flow.device, dtype=flow.dtype)) / 2
    return flow / flow.sum(-1, keepdim=True)


register_inside(
    name="grad_rollout",
    title="Gradient rollout",
    paper="Gildenblat, Exploring Explainability for Vision Transformers, 2020, after Abnar and Zuidema, ACL 2020",
    settings=GradRolloutSettings,
    scores=grad_rollout,
    reads="attention of every layer and its gradients",
    cost="one more forward pass, gradients through all blocks",
    memory="all blocks in float32 and all attention matrices",
    unit="attention flow",
)
