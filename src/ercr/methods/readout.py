"""The logit lens: how strongly each visual token spells a word; never multiplies more than the rows asked for."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ercr.geometry import Geometry
from ercr.trace import Trace, View

_FLAT = 1e-6


def scores(states: Tensor, rows: Tensor) -> Tensor:
    """W_U z for some vocabulary rows: [R, d] and [N, d] to [R, N], in float32 or better."""
    precision = torch.promote_types(states.dtype, torch.float32)
    return rows.to(states.device, precision) @ states.to(precision).mT


def activation_maps(trace: Trace, view: View, tokens: slice, clip: bool = True) -> Tensor:
    """Raw maps [R, h, w] of a view on its own grid (eq. 2 of the paper)."""
    raw = scores(view.states, trace.text.unembedding[tokens])
    return view.geometry.stitch(raw.clamp(min=0) if clip else raw)


def text_scores(trace: Trace, tokens: slice) -> Tensor:
    """How strongly each text position spells the tokens' words, clipped at 0: [R, S up to the last token].

    As TAM reads them: prompt tokens at their own position, the answer's at the position that emits them.
    """
    return scores(trace.text.read_states[: tokens.stop], trace.text.unembedding[tokens]).clamp(min=0)


def earlier(trace: Trace, tokens: slice, exclude_repeats: bool) -> Tensor:
    """Which tokens are context of which: [R, S up to the last token], True where the column comes before the row."""
    device = trace.text.targets.device
    at = torch.arange(tokens.start, tokens.stop, device=device)[:, None]
    before = torch.arange(tokens.stop, device=device)[None] < at
    before = before & trace.text.context[None, : tokens.stop]
    if exclude_repeats:
        before = before & (trace.text.targets[tokens, None] != trace.text.targets[None, : tokens.stop])
    return before


@lru_cache(maxsize=64)
def valid_cells(geometry: Geometry, device: torch.device) -> Tensor:
    """The geometry's valid cells as a tensor."""
    return torch.from_numpy(geometry.valid).to(device)


@lru_cache(maxsize=64)
def covered_cells(view: Geometry, anchor: Geometry, device: torch.device) -> Tensor:
    """The anchor's valid cells that a view shows."""
    return torch.from_numpy(view.covers(anchor)).to(device)


def normalise(maps: Tensor, valid: Tensor, extra: Tensor | None = None) -> Tensor:
    """Min-max over the valid cells (and `extra` scores [R, E], NaN where absent); constant maps become zeros."""
    low = maps.masked_fill(~valid, torch.inf).amin((-2, -1))
    high = maps.masked_fill(~valid, -torch.inf).amax((-2, -1))
    if extra is not None and extra.shape[-1]:
        low = torch.minimum(low, extra.nan_to_num(nan=torch.inf).amin(-1))
        high = torch.maximum(high, extra.nan_to_num(nan=-torch.inf).amax(-1))
    span = (high - low)[..., None, None]
    # what interpolation leaves of a constant is rounding, not evidence
    flat = span <= _FLAT * high.abs()[..., None, None]
    scaled = (maps - low[..., None, None]) / span.masked_fill(flat, 1.0)
    return scaled.masked_fill(flat | ~valid, 0.0)
