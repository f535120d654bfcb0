"""LLaVA-CAM: channels of one block's MLP input weighted by their mean positive gradient."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ercr.errors import InputError
from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.trace import Trace


@dataclass(frozen=True)
class LlavaCamSettings(Settings):
    layer: int | None = None  # block, counted from 0 or the end; by default the published one for the model

    def __post_init__(self) -> None:
        if self.layer is not None and not isinstance(self.layer, int):
            raise InputError(f"layer must be a whole number, not {self.layer!r}.")


def llava_cam(trace: Trace, tokens: slice, settings: LlavaCamSettings) -> Tensor:
    """ReLU(mean_c w_c A_c), w_c = mean over cells of ReLU(dy/dA_c), at the block's post-attention norm."""
    replay = trace.replay
    layer = replay.mlp_cam_block if settings.layer is None else settings.layer
    return combine(*replay.tapped_gradients(layer, "mlp", tokens))


def combine(activations: Tensor, gradients: Tensor) -> Tensor:
    """Maps [R, N] of activations [N, c] and gradients [R, N, c]."""
    weights = gradients.relu().mean(1)
    return (weights @ activations.mT / activations.shape[-1]).relu()


register_inside(
    name="llava_cam",
    title="LLaVA-CAM",
    paper="Zhang et al., From Redundancy to Relevance: Information Flow in LVLMs Across Reasoning Tasks, 2024",
    settings=LlavaCamSettings,
    scores=llava_cam,
    reads="post-attention norm of one block and its gradients",
    cost="one more forward pass, gradients through the blocks behind it",
    memory="the blocks behind it in float32",
    unit="weighted activation",
)
