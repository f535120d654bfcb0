"""CAM: the logit lens of the anchor view, clipped at 0; the simplest map."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.readout import activation_maps, stretched, valid_cells
from ercr.methods.registry import register
from ercr.trace import Needs, Trace


@dataclass(frozen=True)
class CamSettings(Settings):
    clip: bool = True  # set negative logits to 0
    layer: int = -1  # index into the hidden_states of Hugging Face models; -1 is after the final norm


def _evidence(trace: Trace, tokens: slice, settings: CamSettings) -> Evidence:
    raw = activation_maps(trace, trace.anchor, tokens, settings.clip)
    maps, size = stretched(raw, valid_cells(trace.geometry, raw.device))
    return Evidence(maps, size=size.flatten())


def _refine(trace: Trace, evidence: Tensor, tokens: slice, settings: CamSettings) -> Result:
    return Result(evidence[tokens])


register(
    Method(
        name="cam",
        title="Class activation map by the logit lens",
        paper="Zhou et al., Learning Deep Features for Discriminative Localization, CVPR 2016",
        settings=CamSettings,
        needs=lambda settings: Needs(layer=settings.layer),
        evidence=_evidence,
        refine=_refine,
    )
)
