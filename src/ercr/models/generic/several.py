"""From the numbers that each visual token owns to the cells of several pictures and of clips; runs no model.

Every piece is placed as if it were alone. The tokens of a clip are divided into slices by the frames that they show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ercr.errors import UnsupportedModel
from ercr.image.clips import LoadedClip
from ercr.image.geometry import Geometry
from ercr.image.pieces import Piece, together
from ercr.models.generic.cells import Placement, Seen, place, pooled, seen
from ercr.models.generic.charts import Readings, frame_size
from ercr.models.generic.owners import Owners, Resampled
from ercr.models.inputs import Medium

_SAME = 0.25  # frames that a token's numbers may lie beside a whole frame
_BESIDE = 0.4  # cells that the measurements of two slices may differ
_UNLIKE = "the slices of its clips have different cells"


def place_pieces(owners: Owners, found: Readings, media: Sequence[Medium]) -> Placement | None:
    """The pieces and the positions of their cells, or None if one of them has none."""
    owner, strength = owners.position.long(), owners.strength.double()  # the latter is read for clips only
    pieces, order = list[Piece](), list[Tensor]()
    for index, medium in enumerate(media):
        own = torch.where(found.piece == index, owner, -1)
        if isinstance(medium, LoadedClip):
            placed = _clip(own, strength, found, owners, medium)
        else:
            placed = _grid(seen(own, found.x, found.y, owners.length), medium, owners.resampled)
        if placed is None:
            return None
        piece, positions = placed
        pieces.append(piece)
        order.append(positions)
    return Placement(together(pieces), torch.cat(order))


def _grid(tokens: Seen, medium: Medium, resampled: Resampled) -> tuple[Piece, Tensor] | None:
    width, height = frame_size(medium)
    placed = place(tokens, (height, width), resampled)
    if placed is None:
        return None
    assert isinstance(placed.geometry, Geometry), "tokens of one grid have one geometry"
    return Piece(placed.geometry), placed.order


def _clip(
    owner: Tensor, strength: Tensor, found: Readings, owners: Owners, clip: LoadedClip
) -> tuple[Piece, Tensor] | None:
    """The slices of a clip: its tokens by the first and the last frame that their numbers show."""
    length = owners.length
    on = (owner >= 0) & found.frame.isfinite()
    token, frame = owner[on], found.frame[on].round().clamp(0, len(clip.frames) - 1).long()
    if (found.frame[on] - frame).abs().max() > _SAME:
        raise UnsupportedModel("its tokens show mixtures of a clip's frames")
    first = torch.full((length,), len(clip.frames)).scatter_reduce(0, token, frame, "amin")
    last = torch.full((length,), -1).scatter_reduce(0, token, frame, "amax")
    there = last >= 0
    shown = torch.unique(torch.stack([first, last], 1)[there], dim=0)  # in the order of time
    size = frame_size(clip)[::-1]
    slices = []
    for start, stop in shown.tolist():
        mine = (first == start) & (last == stop)
        own = torch.where(mine[owner.clamp(min=0)], owner, -1)
        slices.append(pooled(own, found.x, found.y, strength, length, size))
    if len({len(one.at) for one in slices}) > 1:
        raise UnsupportedModel(_UNLIKE)
    # all slices have the same cells, so each one is a measurement of them
    x, y = (np.stack([getattr(one, name) for one in slices]) for name in ("x", "y"))
    if max(np.ptp(x, 0).max() / slices[0].width[0], np.ptp(y, 0).max() / slices[0].height[0]) > _BESIDE:
        raise UnsupportedModel(_UNLIKE)
    placed = _grid(replace(slices[0], x=x.mean(0), y=y.mean(0)), clip, owners.resampled)
    if placed is None:
        return None
    piece, positions = placed
    rank = torch.searchsorted(torch.from_numpy(slices[0].at), positions)
    order = torch.cat([torch.from_numpy(one.at)[rank] for one in slices])
    times = tuple(clip.times[start : stop + 1] for start, stop in shown.tolist())
    return Piece(piece.geometry, times, clip.end), order
