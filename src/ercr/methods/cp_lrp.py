"""CP-LRP: relevance propagation that treats attention weights, norms and gates as constants."""

from __future__ import annotations

from torch import Tensor

from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.trace import Trace


def cp_lrp(trace: Trace, tokens: slice, settings: Settings) -> Tensor:
    """Signed relevance of the projected image embeddings: embedding times modified gradient, summed over channels."""
    return trace.replay.relevance("cp", tokens)


register_inside(
    name="cp_lrp",
    title="CP-LRP",
    paper="Ali et al., XAI for Transformers: Better Explanations through Conservative Propagation, ICML 2022",
    settings=Settings,
    scores=cp_lrp,
    reads="image embeddings and modified gradients through all blocks",
    cost="one more forward pass, gradients through all blocks",
    memory="all blocks in float32",
    unit="relevance, in logits",
)
