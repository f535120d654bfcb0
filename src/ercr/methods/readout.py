"""The logit lens: the logit of a word's token at each visual token, computed only for the rows that are asked for."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ercr.image.pieces import AnyGeometry, covers
from ercr.trace import Trace, View

_CONSTANT = 1e-6


def scores(states: Tensor, rows: Tensor) -> Tensor:
    """W_U z for some vocabulary rows: [R, d] and [N, d] to [R, N], in float32 or better."""
    precision = torch.promote_types(states.dtype, torch.float32)
    return rows.to(states.device, precision) @ states.to(precision).mT


def activation_maps(trace: Trace, view: View, tokens: slice, clip: bool = True) -> Tensor:
    """Raw maps [R, h, w] of a view on its own grid (eq. 2 of the paper)."""
    return view.geometry.stitch(visual_scores(view, trace.text.unembedding[tokens], clip))


def visual_scores(view: View, rows: Tensor, clip: bool = True) -> Tensor:
    """The same scores per visual token [R, N], before they are arranged as a map; `rows` [R, d] are rows of W_U."""
    raw = rows.to(view.columns) @ view.columns
    return raw.clamp(min=0) if clip else raw


def text_scores(trace: Trace, tokens: slice) -> Tensor:
    """The tokens' logits at each text position, clipped at 0: [R, S up to the last token].

    As in TAM, prompt tokens are read at their own position and answer tokens at the position that emits them.
    """
    return scores(trace.text.read_states[: tokens.stop], trace.text.unembedding[tokens]).clamp(min=0)


def earlier(trace: Trace, tokens: slice, exclude_repeats: bool) -> Tensor:
    """The context mask [R, S up to the last token]: True if the column's token may be context of the row's."""
    context, places = trace.text.context[: tokens.stop], trace.text.places
    if places is None:
        before = context.expand(tokens.stop - tokens.start, tokens.stop).tril(tokens.start - 1)
    else:
        before = context & (places[: tokens.stop] < places[tokens, None])
    if exclude_repeats:
        before = before & (trace.text.targets[tokens, None] != trace.text.targets[None, : tokens.stop])
    return before


@lru_cache(maxsize=64)
def valid_cells(geometry: AnyGeometry, device: torch.device) -> Tensor:
    """The geometry's valid cells as a tensor."""
    return torch.from_numpy(geometry.valid).to(device)


@lru_cache(maxsize=64)
def covered_cells(views: tuple[AnyGeometry, ...], anchor: AnyGeometry, device: torch.device) -> Tensor | None:
    """Mask [V, 1, h, w] of the anchor's valid cells that each view shows, or None if every view shows every cell."""
    cells = torch.stack([torch.from_numpy(covers(view, anchor)) for view in views])[:, None]
    return None if bool(cells.all()) else cells.to(device)


def normalise(maps: Tensor, valid: Tensor | None, extra: Tensor | None = None) -> Tensor:
    """Min-max normalisation over valid cells and `extra` scores [R, E] (NaN: absent); constant maps become zeros.

    Without `valid`, all cells are valid.
    """
    return stretched(maps, valid, extra)[0]


def stretched(maps: Tensor, valid: Tensor | None, extra: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The normalised maps, and the highest value [..., 1, 1] that became 1."""
    hidden = None if valid is None else ~valid
    low = (maps if hidden is None else maps.masked_fill(hidden, torch.inf)).amin((-2, -1), keepdim=True)
    high = (maps if hidden is None else maps.masked_fill(hidden, -torch.inf)).amax((-2, -1), keepdim=True)
    if extra is not None and extra.shape[-1]:
        low = torch.minimum(low, extra.nan_to_num(nan=torch.inf).amin(-1)[..., None, None])
        high = torch.maximum(high, extra.nan_to_num(nan=-torch.inf).amax(-1)[..., None, None])
    span = high - low
    # differences this small are rounding errors of interpolation; division by infinity makes them 0
    span = span.masked_fill(span <= _CONSTANT * high.abs(), torch.inf)
    scaled = (maps - low) / span
    return scaled if hidden is None else scaled.masked_fill(hidden, 0.0), high
