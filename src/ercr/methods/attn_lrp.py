"""AttnLRP: relevance propagation that divides the relevance of a product between its factors."""

from __future__ import annotations

from torch import Tensor

from ercr.methods.base import Settings
from ercr.methods.inside import register_inside
from ercr.trace import Trace


def attn_lrp(trace: Trace, tokens: slice, settings: Settings) -> Tensor:
    """Signed relevance of the projected image embeddings: embedding times modified gradient, summed over channels."""
    return trace.replay.relevance("attn", tokens)


register_inside(
    name="attn_lrp",
    title="AttnLRP",
    paper="Achtibat et al., AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers, ICML 2024",
    settings=Settings,
    scores=attn_lrp,
    reads="image embeddings and modified gradients through all blocks",
    cost="one more forward pass, gradients through all blocks",
    memory="all blocks in float32",
    unit="relevance, in logits",
)
