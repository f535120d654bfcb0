"""LVLM-Interpret: relevancy maps, which accumulate attention times its positive gradients over layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.trace import Trace


def lvlm_interpret(trace: Trace, tokens: slice, settings: Settings) -> Tensor:
    """Row e(t) of R, where R = I and per layer R += C R, C = mean over heads of ReLU(attention x gradient).

    R is a product of matrices (I + C), so its row e(t) is computed from the last layer to the first.
    """
    replay = trace.replay
    maps = []
    for part, weights, gradients in replay.attention_gradients(tokens):
        start = F.one_hot(replay.emitting[part], replay.length).to(weights[0].dtype)[:, None]  # [R, 1, L]
        rows = start
        for attention, gradient in zip(reversed(weights), reversed(gradients), strict=True):
            rows = rows + rows @ (attention * gradient).relu().mean(1)
        gained = (rows - start)[:, 0]
        maps.append((gained / gained.sum(-1, keepdim=True).clamp(min=torch.finfo(gained.dtype).tiny))[:, replay.visual])
    return torch.cat(maps)


register_inside(
    name="lvlm_interpret",
    title="LVLM-Interpret relevancy",
    paper="Ben Melech Stan et al., LVLM-Interpret, CVPR Workshops 2024, after Chefer et al., ICCV 2021",
    settings=Settings,
    scores=lvlm_interpret,
    reads="attention of every layer and its gradients",
    cost="one more forward pass, gradients through all blocks",
    memory="all blocks in float32 and all attention matrices",
    unit="relevance",
)
