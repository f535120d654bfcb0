"""The logit lens: how strongly each visual token spells a word; never multiplies more than the rows asked for."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ercr.image.geometry import Geometry
from ercr.trace import Trace, View

_FLAT = 1e-6


def scores(states: Tensor, rows: Tensor) -> Tensor:
    """W_U z for some vocabulary rows: [R, d] and [N, d] to [R, N], in float32 or better."""
    precision = torch.promote_types(states.dtype, torch.float32)
    return rows.to(states.device, precision) @ states.to(precision).mT


def activation_maps(trace: Trace, view: View, tokens: slice, clip: bool = True) -> Tensor:
    """Raw maps [R, h, w] of a view on its own grid (eq. 2 of the paper)."""
    return view.geometry.stitch(visual_scores(view, trace.text.unembedding[tokens], clip))


def visual_scores(view: View, rows: Tensor, clip: bool = True) -> Tensor:
    """The same by visual token [R, N], before they are put into their places; `rows` [R, d] are rows of W_U."""
    raw = rows.to(view.columns) @ view.columns
    return raw.clamp(min=0) if clip else raw


def text_scores(trace: Trace, tokens: slice) -> Tensor:
    """How strongly each text position spells the tokens' words, clipped at 0: [R, S up to the last token].

    As TAM reads them: prompt tokens at their own position, the answer's at the position that emits them.
    """
    return scores(trace.text.read_states[: tokens.stop], trace.text.unembedding[tokens]).clamp(min=0)


def earlier(trace: Trace, tokens: slice, exclude_repeats: bool) -> Tensor:
    """Which tokens are context of which: [R, S up to the last token], True where the column comes before the row."""
    context = trace.text.context[: tokens.stop]
    before = context.expand(tokens.stop - tokens.start, tokens.stop).tril(tokens.start - 1)
    if exclude_repeats:
        before = before & (trace.text.targets[tokens, None] != trace.text.targets[None, : tokens.stop])
    return before


@lru_cache(maxsize=64)
def valid_cells(geometry: Geometry, device: torch.device) -> Tensor:
    """The geometry's valid cells as a tensor."""
    return torch.from_numpy(geometry.valid).to(device)


@lru_cache(maxsize=64)
def covered_cells(views: tuple[Geometry, ...], anchor: Geometry, device: torch.device) -> Tensor | None:
    """The anchor's valid cells that each of some views shows [V, 1, h, w], or None where that is every cell."""
    cells = torch.stack([torch.from_numpy(view.covers(anchor)) for view in views])[:, None]
    return None if bool(cells.all()) else cells.to(device)


def normalise(maps: Tensor, valid: Tensor | None, extra: Tensor | None = None) -> Tensor:
    """Min-max over the valid cells (and `extra` scores [R, E], NaN where absent); constant maps become zeros.

    Without `valid`, every cell is.
    """
    hidden = None if valid is None else ~valid
    low = (maps if hidden is None else maps.masked_fill(hidden, torch.inf)).amin((-2, -1), keepdim=True)
    high = (maps if hidden is None else maps.masked_fill(hidden, -torch.inf)).amax((-2, -1), keepdim=True)
    if extra is not None and extra.shape[-1]:
        low = torch.minimum(low, extra.nan_to_num(nan=torch.inf).amin(-1)[..., None, None])
        high = torch.maximum(high, extra.nan_to_num(nan=-torch.inf).amax(-1)[..., None, None])
    span = high - low
    # what interpolation leaves of a constant is rounding, not evidence: divided by infinity it is 0
    span = span.masked_fill(span <= _FLAT * high.abs(), torch.inf)
    scaled = (maps - low) / span
    return scaled if hidden is None else scaled.masked_fill(hidden, 0.0)
