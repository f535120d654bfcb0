"""Grad-CAM++: channels weighted by higher-order gradients of the emitted logit."""

from __future__ import annotations

import torch
from torch import Tensor

from ercr.methods.inside import BlockSettings, register_inside
from ercr.trace import Trace

_EPS = 1e-6


def grad_cam_pp(trace: Trace, tokens: slice, settings: BlockSettings) -> Tensor:
    """ReLU(sum_c w_c A_c) at a block's input norm, the last one's by default."""
    return combine(*trace.replay.tapped_gradients(settings.layer, "attention", tokens))


def combine(activations: Tensor, gradients: Tensor) -> Tensor:
    """Maps [R, N] of activations [N, c] and gradients [R, N, c].

    alpha = G^2 / (2 G^2 + sum(A_c) G^3 + eps), zero where G is; w_c = sum over cells of ReLU(G) alpha.
    """
    square = gradients**2
    alpha = square / (2 * square + activations.sum(0) * square * gradients + _EPS)
    weights = (gradients.relu() * alpha.masked_fill(gradients == 0, 0.0)).sum(1)
    return torch.relu(weights @ activations.mT)


register_inside(
    name="grad_cam_pp",
    title="Grad-CAM++",
    paper="Chattopadhay et al., Grad-CAM++: Generalized Gradient-Based Visual Explanations, WACV 2018",
    settings=BlockSettings,
    scores=grad_cam_pp,
    reads="input norm of one block and its gradients",
    cost="one more forward pass, gradients through that block and later ones",
    memory="those blocks in float32",
    unit="weighted activation",
)
