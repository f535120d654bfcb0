"""Which picture, and which part of a clip's time, holds a word's evidence; it reads maps and makes none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ercr.image.geometry import Floats
from ercr.image.pieces import AnyGeometry, pieces_of, split


@dataclass(frozen=True)
class Place:
    """A picture, or a part of a clip's time, and its share of a word's evidence."""

    picture: int  # among the pictures and clips, from 0
    share: float
    start: float | None = None  # seconds, of a clip
    stop: float | None = None


def place_shares(geometry: AnyGeometry, tokens: Floats) -> list[list[float]]:
    """The share of a word's evidence in each slice of each piece, of its tokens' maps [T, h, w] on one scale.

    A picture counts the same whatever its number of cells, and as much as a slice. The tokens of a word have shares of
    their own, and each counts as much as it is strong: a plural's "s" is spelt wherever several of anything are.
    """
    pieces = pieces_of(geometry)
    means = [
        maps.reshape(len(tokens), piece.slices, -1).sum(2) / max(int(piece.geometry.valid.sum()), 1)
        for piece, maps in zip(pieces, split(geometry, tokens), strict=True)
    ]
    amounts = np.concatenate(means, 1)
    totals = amounts.sum(1, keepdims=True)
    votes = np.divide(amounts, totals, out=np.zeros_like(amounts), where=totals > 0)
    votes = (tokens.max((1, 2), initial=0.0)[:, None] * votes).sum(0)
    borders = np.cumsum([piece.slices for piece in pieces])[:-1]
    return [part.tolist() for part in np.split(votes / (votes.sum() or 1.0), borders)]


def places(geometry: AnyGeometry, shares: list[list[float]]) -> list[Place]:
    """The same as places with their seconds, the largest first."""
    found = []
    for at, (piece, own) in enumerate(zip(pieces_of(geometry), shares, strict=True)):
        spans: list[tuple[float, float]] | list[tuple[None, None]] = piece.spans or [(None, None)]
        found += [Place(at, share, *span) for share, span in zip(own, spans, strict=True)]
    return sorted(found, key=lambda place: -place.share)
