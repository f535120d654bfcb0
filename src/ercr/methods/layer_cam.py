"""Layer-CAM: activations weighted cell by cell with positive gradients of the emitted logit."""

from __future__ import annotations

from torch import Tensor

from ercr.methods.inside import BlockSettings, register_inside
from ercr.trace import Trace


def layer_cam(trace: Trace, tokens: slice, settings: BlockSettings) -> Tensor:
    """ReLU(sum_c ReLU(G) A) at a block's input norm, the last one's by default."""
    return combine(*trace.replay.tapped_gradients(settings.layer, "attention", tokens))


def combine(activations: Tensor, gradients: Tensor) -> Tensor:
    """Maps [R, N] of activations [N, c] and gradients [R, N, c]."""
    return (gradients.relu() * activations).sum(-1).relu()


register_inside(
    name="layer_cam",
    title="Layer-CAM",
    paper="Jiang et al., LayerCAM: Exploring Hierarchical Class Activation Maps, TIP 2021",
    settings=BlockSettings,
    scores=layer_cam,
    reads="input norm of one block and its gradients",
    cost="one more forward pass, gradients through that block and later ones",
    memory="those blocks in float32",
    unit="weighted activation",
)
