"""VL-Interpret: similarity of a word's last state with each visual token's."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.trace import Trace


def vl_interpret(trace: Trace, tokens: slice, settings: Settings) -> Tensor:
    """Cosine of the last hidden state at the token's own position with each visual token's."""
    replay = trace.replay
    states = F.normalize(replay.states().float(), dim=-1)
    return states[replay.own[tokens]] @ states[replay.visual].mT


register_inside(
    name="vl_interpret",
    title="VL-Interpret similarity",
    paper="Aflalo et al., VL-InterpreT, CVPR 2022",
    settings=Settings,
    scores=vl_interpret,
    reads="last states of text and image",
    cost="one more forward pass",
    memory="as a forward pass",
    unit="cosine",
)
