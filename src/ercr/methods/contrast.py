"""Contrast: ERCR with the zero of every word's logit where other words stand.

These are the word's rivals, which the model could have said instead, and a little of the whole vocabulary. A logit has
no zero of its own: adding a number to the logits of all words changes no probability. `docs/contrast.md` says how the
settings were found, and what each of them gives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from ercr.errors import InputError, choose
from ercr.image.pieces import AnyGeometry
from ercr.methods.base import Evidence, Method, Result
from ercr.methods.ercr import ErcrSettings, filtered, put_together, subtract_context
from ercr.methods.ranking import tail_weights
from ercr.methods.readout import stretched, valid_cells, visual_scores
from ercr.methods.registry import register
from ercr.methods.tam import TamSettings, remove_interference
from ercr.trace import Needs, Trace, View

_ENTRIES = 2**24  # of the rivals' rows in memory at once
_SHORTEST = 3  # letters with which a longer token must begin to count as a form of the shorter one
_GATES = {"root": 0.5, "probability": 1.0, "none": 0.0}  # exponent of the word's probability


@dataclass(frozen=True)
class ContrastSettings(ErcrSettings):
    weights: tuple[float, ...] | None = None  # of the views; by default their scales
    smoothing: float = 0.5  # share of the rank filter in the final map: 1 as ERCR, 0 without it
    common: float = 0.15  # how much of what all words of the vocabulary have in common is subtracted
    share: float = 0.4  # how much of the rivals' level is subtracted
    local: float = 0.5  # how much of that at each cell by itself, the rest as the mean over the picture
    rivals: int = 50  # how many of the model's most probable tokens count, the word's own included
    among: str = "uniform"  # weights of the rivals: uniform, probability, rank
    gate: str = "probability"  # what the share is multiplied by: probability of the word or its root, none
    forms: bool = True  # whether other forms and pieces of the same word count as rivals
    base: str = "ercr"  # the method whose logits get the new zero: ercr, tam, cam

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weights is None:
            object.__setattr__(self, "weights", self.scales)
        choose("among", self.among, "uniform", "probability", "rank")
        choose("gate", self.gate, *_GATES)
        choose("base", self.base, "ercr", "tam", "cam")
        if not all(0 <= part <= 1 for part in (self.smoothing, self.local, self.common)) or not 0 <= self.share <= 2:
            raise InputError("smoothing, local and common must lie between 0 and 1, and share between 0 and 2.")
        if not 2 <= self.rivals <= 200:
            raise InputError(f"rivals must be 2 to 200, not {self.rivals}.")


def _needs(settings: ContrastSettings) -> Needs:
    views = settings.base == "ercr"
    scales = settings.scales if views else (1.0,)
    return Needs(scales, settings.view_kind if views else "pad", settings.layer, max(settings.k, settings.rivals))


def evidence(trace: Trace, tokens: slice, settings: ContrastSettings) -> Evidence:
    """The base method's evidence, from logits whose zero is where the rivals stand."""
    words = trace.text.unembedding[tokens].to(trace.anchor.columns)
    if settings.common:
        words = words - settings.common * trace.mean_row.to(words)
    rivals = rival_rows(trace, tokens, settings) * amount(trace, tokens, settings).to(words)
    if settings.base == "ercr":
        read = [above_rivals(trace.view(scale), words, rivals, settings) for scale in settings.scales]
        return put_together(trace, read, settings)
    maps = trace.geometry.stitch(above_rivals(trace.anchor, words, rivals, settings))
    if settings.base == "tam":
        return Evidence(maps)
    shown, size = stretched(maps, valid_cells(trace.geometry, maps.device))
    return Evidence(shown, size=size.flatten())


def amount(trace: Trace, tokens: slice, settings: ContrastSettings) -> Tensor:
    """How much of the rivals is subtracted from each word [R, 1]: less where the model held the word unlikely."""
    return settings.share * (_GATES[settings.gate] * trace.text.log_probabilities[tokens, None]).exp()


def above_rivals(view: View, words: Tensor, rivals: Tensor, settings: ContrastSettings) -> Tensor:
    """Logits [R, N] of words at visual tokens, less the rivals': in part cell by cell, in part their mean."""
    cells = visual_scores(view, rivals, clip=False)
    level = (view.geometry.stitch(cells) * _even(view.geometry, cells.device, cells.dtype)).sum((-2, -1))
    raw = visual_scores(view, words, clip=False) - torch.lerp(level[:, None], cells, settings.local)
    return raw.clamp(min=0) if settings.clip else raw


@lru_cache(maxsize=64)
def _even(geometry: AnyGeometry, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The weight of each cell [h, w] in a mean over the valid ones."""
    valid = valid_cells(geometry, device).to(dtype)
    return valid / valid.sum()


def rival_rows(trace: Trace, tokens: slice, settings: ContrastSettings) -> Tensor:
    """The weighted mean [R, d] of the unembedding's rows of each word's rivals; zeros for a word without any."""
    ids = trace.text.top_ids[tokens, : settings.rivals]
    weights = _among(trace, tokens, settings).masked_fill(_same(trace, ids, tokens, settings), 0.0)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    width = trace.text.unembedding.shape[-1]
    step = max(1, _ENTRIES // (ids.shape[-1] * width))
    parts = []
    for some, shares in zip(torch.split(ids, step), torch.split(weights, step), strict=True):
        rows = trace.unembed(some.flatten()).view(*some.shape, width).to(shares)
        parts.append((shares[:, None] @ rows)[:, 0])
    return parts[0] if len(parts) == 1 else torch.cat([weights.new_zeros(0, width), *parts])


def _among(trace: Trace, tokens: slice, settings: ContrastSettings) -> Tensor:
    """Weights [R, k] of the most probable tokens, not normalised; by rank as in rank-biased overlap."""
    probabilities = trace.text.top_probabilities[tokens, : settings.rivals].to(trace.anchor.columns)
    if settings.among == "probability":
        return probabilities
    if settings.among == "rank":
        return (
            tail_weights(probabilities.shape[-1], settings.p, probabilities.device)
            .to(probabilities)
            .expand_as(probabilities)
        )
    return torch.ones_like(probabilities)


def _same(trace: Trace, ids: Tensor, tokens: slice, settings: ContrastSettings) -> Tensor:
    """Which of the most probable tokens [R, k] are no rivals: the word's own and, if asked for, other forms of it."""
    targets = trace.text.targets[tokens, None]
    if settings.forms:
        return ids == targets
    letters = trace.letters.to(ids.device)
    ours, theirs = letters[targets], letters[ids]  # [R, 1, L] and [R, k, L]; 0 behind the end
    begins = ((ours == theirs) | (ours == 0) | (theirs == 0)).all(-1)
    lengths = [(word != 0).sum(-1) for word in (ours, theirs)]
    return begins & ((torch.minimum(*lengths) >= _SHORTEST) | (lengths[0] == lengths[1]))


def refine(trace: Trace, maps: Tensor, tokens: slice, settings: ContrastSettings) -> Result:
    """The base method's second step; of ERCR's filter a share."""
    if settings.base == "cam":
        return Result(maps[tokens])
    if settings.base == "tam":
        return remove_interference(trace, maps, tokens, TamSettings(filter=settings.filter))
    found = subtract_context(trace, maps, tokens, settings)
    if not settings.filter or settings.smoothing == 0:
        return found
    return replace(found, maps=torch.lerp(found.maps, filtered(trace, found.maps), settings.smoothing))


register(
    Method(
        name="contrast",
        title="Evidence against what could have been said instead",
        paper="Of this package; its two steps are those of Liang et al., 2026",
        settings=ContrastSettings,
        needs=_needs,
        evidence=evidence,
        refine=refine,
        reads="visual states of every view, ranked lists, unembedding rows of the most probable tokens",
        cost="as ercr",
    )
)
