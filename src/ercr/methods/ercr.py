"""ERCR: evidence recomposed over views, minus what the preceding words explain (section III)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from ercr.errors import InputError, choose
from ercr.image.pieces import AnyGeometry, read_at, sheets_of
from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.ranking import rank_biased_overlap
from ercr.methods.readout import (
    covered_cells,
    earlier,
    normalise,
    stretched,
    text_scores,
    valid_cells,
    visual_scores,
)
from ercr.methods.registry import register
from ercr.methods.residual import residualise, weighted_context
from ercr.methods.smoothing import rank_gaussian
from ercr.models.inputs import ViewKind
from ercr.trace import Needs, Trace


@dataclass(frozen=True)
class ErcrSettings(Settings):
    scales: tuple[float, ...] = (0.5, 0.75, 1.0)
    views: int | str = "pad"  # a number of evenly spaced scales, or how views fill a fixed canvas: pad, interpolate
    weights: tuple[float, ...] | None = None  # of the views; uniform by default
    aggregate: str = "mean"  # mean, max
    context: str = "pcr"  # pcr, tam, mean, none
    filter: bool = True
    normalize: str = "none"  # after the residual: none, minmax, joint
    exclude_repeats: bool = False  # exclude earlier occurrences of the same token from the context
    clip: bool = True  # set negative logits to 0
    layer: int = -1  # index into the hidden_states of Hugging Face models; -1 is after the final norm
    k: int = 50  # depth of the ranked lists
    p: float = 0.8  # persistence of the rank-biased overlap: the smaller, the more the first ranks count
    eps: float = 1e-8

    def __post_init__(self) -> None:
        choose("aggregate", self.aggregate, "mean", "max")
        choose("context", self.context, "pcr", "tam", "mean", "none")
        choose("normalize", self.normalize, "none", "minmax", "joint")
        if isinstance(self.views, int):
            if not 1 <= self.views <= 64:
                raise InputError(f"views must be 1 to 64, 'pad' or 'interpolate', not {self.views}.")
            object.__setattr__(self, "scales", _spaced(self.views))
        else:
            choose("views", self.views, "pad", "interpolate")
        object.__setattr__(self, "scales", _as_numbers("scales", self.scales))
        if not all(0.05 <= scale <= 4 for scale in self.scales):
            raise InputError(f"scales must lie between 0.05 and 4, not {self.scales}.")
        if self.weights is not None:
            object.__setattr__(self, "weights", _as_numbers("weights", self.weights))
            if len(self.weights) != len(self.scales) or min(self.weights) < 0 or sum(self.weights) <= 0:
                raise InputError(f"weights must be {len(self.scales)} numbers >= 0 with a positive sum.")
        if not 1 <= self.k <= 200 or not 0 <= self.p < 1 or not self.eps > 0:
            raise InputError("k must be 1 to 200, p at least 0 and below 1, and eps above 0.")

    @property
    def view_kind(self) -> ViewKind:
        return "interpolate" if self.views == "interpolate" else "pad"


def _spaced(count: int) -> tuple[float, ...]:
    """Scales from 0.5 to 1 in even steps; a single view is the anchor."""
    return (1.0,) if count == 1 else tuple(0.5 + 0.5 * i / (count - 1) for i in range(count))


def _as_numbers(name: str, value: object) -> tuple[float, ...]:
    try:
        numbers = tuple(float(v) for v in (value if isinstance(value, list | tuple) else (value,)))
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers, such as 0.5/0.75/1, not {value!r}.") from None
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise InputError(f"{name} must be one or more finite numbers, not {value!r}.")
    return numbers


def recompose(trace: Trace, tokens: slice, settings: ErcrSettings) -> Evidence:
    """ER maps [R, h, w] on the anchor's grid (eqs. 6 and 7): warp, normalise, then mean or max over views.

    A cell that a view does not show (at scales above 1 on a fixed canvas) uses only the views that show it.
    """
    views = [trace.view(scale) for scale in settings.scales]
    rows = trace.text.unembedding[tokens].to(views[0].columns)
    return put_together(trace, [visual_scores(view, rows, settings.clip) for view in views], settings)


def put_together(trace: Trace, scores: Sequence[Tensor], settings: ErcrSettings) -> Evidence:
    """The same from the scores [R, N] of each view's visual tokens, in the order of the settings' scales."""
    anchor, views = trace.geometry, [trace.view(scale) for scale in settings.scales]
    shown = tuple(view.geometry for view in views)
    stack = torch.stack([read_at(view.geometry, anchor, own) for view, own in zip(views, scores, strict=True)])
    stack, highest = stretched(stack, covered_cells(shown, anchor, stack.device))
    # the anchor's own map, so that a page can show what the other views changed
    raw = {"raw": stack[settings.scales.index(1.0)]} if 1.0 in settings.scales and len(views) > 1 else {}
    if settings.aggregate == "max":
        return Evidence(stack.amax(0), raw, highest.amax((0, 2, 3)))
    shares = _shares(shown, anchor, settings.weights, stack.device, stack.dtype)
    given = _weights(settings.weights, len(views), stack.device, stack.dtype)
    return Evidence((stack * shares).sum(0), raw, (highest * given).sum((0, 2, 3)))


@lru_cache(maxsize=64)
def _weights(weights: tuple[float, ...] | None, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The weights of the views [V, 1, 1, 1], which sum to 1."""
    given = torch.tensor(weights or [1.0] * count, dtype=torch.float64)[:, None, None, None]
    return (given / given.sum()).to(dtype).to(device)


@lru_cache(maxsize=64)
def _shares(
    shown: tuple[AnyGeometry, ...],
    anchor: AnyGeometry,
    weights: tuple[float, ...] | None,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """The weight of each view at each cell [V, 1, h, w], normalised over the views that show the cell."""
    given = torch.tensor(weights or [1.0] * len(shown), dtype=torch.float64)[:, None, None, None]
    cover = covered_cells(shown, anchor, given.device)
    given = given.expand(-1, -1, *anchor.grid) if cover is None else given * cover
    return (given / given.sum(0).clamp(min=torch.finfo(torch.float64).tiny)).to(device, dtype)


def residualise_context(trace: Trace, evidence: Tensor, tokens: slice, settings: ErcrSettings) -> Result:
    """PCR (eqs. 10 to 18): subtract the fitted context map of the preceding words, clip at 0, filter."""
    cleaned = subtract_context(trace, evidence, tokens, settings)
    return replace(cleaned, maps=filtered(trace, cleaned.maps)) if settings.filter else cleaned


def subtract_context(trace: Trace, evidence: Tensor, tokens: slice, settings: ErcrSettings) -> Result:
    """The same without the filter."""
    maps = evidence[tokens]
    weights, relevance = context_weights(trace, tokens, settings)
    alpha, context = weighted_context(weights, evidence[: tokens.stop], settings.eps)
    residual, beta = residualise(maps, context, settings.eps)
    cleaned, size = residual.clamp(min=0), None
    if settings.normalize != "none":
        valid = valid_cells(trace.geometry, maps.device)
        extra = _joint_scores(trace, tokens) if settings.normalize == "joint" else None
        size = cleaned.masked_fill(~valid, 0).amax((-2, -1))
        cleaned = normalise(cleaned, valid, extra)
    return Result(cleaned, alpha, beta, relevance, size)


def filtered(trace: Trace, maps: Tensor) -> Tensor:
    """Maps after the rank Gaussian filter, 0 outside the valid cells."""
    return rank_gaussian(maps, sheets_of(trace.geometry)) * valid_cells(trace.geometry, maps.device)


def context_weights(trace: Trace, tokens: slice, settings: ErcrSettings) -> tuple[Tensor, Tensor | None]:
    """Unnormalised weights [R, S] of the preceding tokens and, for PCR, their rank relevance."""
    before = earlier(trace, tokens, settings.exclude_repeats)
    if settings.context == "pcr":
        lists = trace.text.top_ids[:, : settings.k]
        relevance = rank_biased_overlap(lists[tokens], lists[: tokens.stop], settings.p, trace.vocabulary)
        return (1 - relevance) * before, relevance
    if settings.context == "tam":
        return text_scores(trace, tokens) * before, None
    return before.float() * (settings.context == "mean"), None


def _joint_scores(trace: Trace, tokens: slice) -> Tensor:
    return text_scores(trace, tokens).masked_fill(~earlier(trace, tokens, False), torch.nan)


register(
    Method(
        name="ercr",
        title="Evidence recomposition and predictive context residualization",
        paper="Liang et al., Evidence Recomposition and Predictive Context Residualization for Visual Attribution "
        "in Multimodal Large Language Models, 2026",
        settings=ErcrSettings,
        needs=lambda settings: Needs(settings.scales, settings.view_kind, settings.layer, settings.k),
        evidence=recompose,
        refine=residualise_context,
        reads="visual states of every view, ranked lists",
        cost="one forward pass and one short pass per further view",
    )
)
