"""Attention: the attention weights of the emitting position in one layer, averaged over heads."""

from __future__ import annotations

from torch import Tensor

from ercr.methods.inside import BlockSettings, register_inside
from ercr.trace import Trace


def attention(trace: Trace, tokens: slice, settings: BlockSettings) -> Tensor:
    """Mean over heads of the attention from e(t) to the visual tokens."""
    replay = trace.replay
    (block,) = replay.attentions([settings.layer]).values()
    return block.mean_rows(replay.emitting[tokens])[:, replay.visual]


register_inside(
    name="attention",
    title="Attention of the last layer",
    paper="Vaswani et al., Attention Is All You Need, NeurIPS 2017",
    settings=BlockSettings,
    scores=attention,
    reads="attention rows of one layer",
    cost="one more forward pass",
    memory="as a forward pass",
    unit="attention weight",
)
