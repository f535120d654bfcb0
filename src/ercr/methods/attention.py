"""Attention: where the emitting position looks in one layer, averaged over heads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.trace import Trace


@dataclass(frozen=True)
class AttentionSettings(Settings):
    layer: int = -1  # block, counted from 0 or from the end


def attention(trace: Trace, tokens: slice, settings: AttentionSettings) -> Tensor:
    """Mean over heads of the attention from e(t) to the visual tokens."""
    replay = trace.replay
    (block,) = replay.attentions([settings.layer]).values()
    return block.mean_rows(replay.emitting[tokens])[:, replay.visual]


register_inside(
    name="attention",
    title="Attention of the last layer",
    paper="Vaswani et al., Attention Is All You Need, NeurIPS 2017",
    settings=AttentionSettings,
    scores=attention,
    reads="attention rows of one layer",
    cost="one more forward pass",
    memory="as a forward pass",
)
