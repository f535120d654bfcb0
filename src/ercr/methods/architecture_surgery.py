"""Architecture surgery: a second path of value-to-value attention along the last blocks, and its logit lens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ercr.errors import InputError
from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.methods.readout import scores
from ercr.trace import Trace


@dataclass(frozen=True)
class SurgerySettings(Settings):
    blocks: int = 6  # how many of the last blocks have the second path

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise InputError(f"blocks must be at least 1, not {self.blocks}.")


def architecture_surgery(trace: Trace, tokens: slice, settings: SurgerySettings) -> Tensor:
    """x' += O softmax(v v^T / sqrt(d)) v over the last blocks, v from the original stream; then the clipped lens."""
    replay = trace.replay
    first = max(0, replay.depth - settings.blocks)
    second_path = replay.states(first)[replay.visual]
    layers = replay.attentions(range(first, replay.depth))
    for layer in range(first, replay.depth):
        second_path = second_path + layers[layer].value_to_value(replay.visual)
    return scores(replay.read(second_path), trace.text.unembedding[tokens]).clamp(min=0)


register_inside(
    name="architecture_surgery",
    title="Architecture surgery",
    paper="Li et al., A Closer Look at the Explainability of Contrastive Language-Image Pre-training, PR 2025",
    settings=SurgerySettings,
    scores=architecture_surgery,
    reads="values of the last blocks",
    cost="two more forward passes",
    memory="values of the last blocks",
    unit="logit",
)
