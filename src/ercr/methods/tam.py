"""TAM: the logit lens minus the interference of earlier words, without the quirks of its public code."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ercr.image.pieces import sheets_of
from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.readout import activation_maps, earlier, stretched, text_scores, valid_cells
from ercr.methods.registry import register
from ercr.methods.residual import residualise, weighted_context
from ercr.methods.smoothing import rank_gaussian
from ercr.methods.tam_compat import compat_maps
from ercr.trace import Needs, Trace

_EPS = 1e-8


@dataclass(frozen=True)
class TamSettings(Settings):
    compat: bool = False  # reproduce the public code's uint8 maps bit by bit, with its quirks
    filter: bool = True
    layer: int = -1  # index into the hidden_states of Hugging Face models; -1 is after the final norm


def _evidence(trace: Trace, tokens: slice, settings: TamSettings) -> Evidence:
    return Evidence(activation_maps(trace, trace.anchor, tokens))


def remove_interference(trace: Trace, evidence: Tensor, tokens: slice, settings: TamSettings) -> Result:
    maps = evidence[tokens]
    if settings.compat:
        # the highest logit of the map stands for the scale, which the public code does not keep
        return Result(compat_maps(trace)[tokens], size=maps.amax((-2, -1)))
    logits = text_scores(trace, tokens)
    weights = logits * earlier(trace, tokens, exclude_repeats=True)
    alpha, context = weighted_context(weights, evidence[: tokens.stop], _EPS)
    residual, beta = residualise(maps, context, _EPS)
    valid = valid_cells(trace.geometry, maps.device)
    context_logits = logits.masked_fill(~earlier(trace, tokens, exclude_repeats=False), torch.nan)
    cleaned, size = stretched(residual.clamp(min=0), valid, context_logits)
    if settings.filter:
        cleaned = rank_gaussian(cleaned, sheets_of(trace.geometry)) * valid
    return Result(cleaned, alpha, beta, size=size.flatten())


register(
    Method(
        name="tam",
        title="Token activation map",
        paper="Li et al., Token Activation Map to Visually Explain Multimodal LLMs, ICCV 2025",
        settings=TamSettings,
        needs=lambda settings: Needs(layer=settings.layer),
        evidence=_evidence,
        refine=remove_interference,
        reads="visual and text states of the last block",
        streams=lambda settings: not settings.compat,
    )
)
