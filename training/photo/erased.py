"""Pictures without their people: the rest shows a place with nobody in it, and the caption must say so.

Nearly every room and street of Flickr8k has people in it, so the data has no examples without them. Here the cells that
show people are filled with others of the same picture, and the caption is made of what else its captions agree on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from .words import words_of

_AGREED = 2  # captions of a picture that must have a word
_SEEN = 3.0  # a logit of people from which on a cell is taken to show them
# what stays when people go; a bicycle goes with its rider, and dogs are told of often enough
_STAYS = frozenset(
    "water street streets rock rocks snow beach field pool mountain mountains wall building buildings grass bench hill "
    "sidewalk ocean car cars tree trees boat table city sign road sand lake fence fountain playground window chair "
    "chairs bridge river bed couch floor stairs flowers kitchen restaurant room store market forest woods path yard "
    "garden park train bus truck tent stage dirt mud gravel dock pier cliff waterfall statue house boats shore "
    "trail ramp lawn bushes plants mirror rug carpet stove counter shelf shelves door television "
    "computer desk sofa bathroom bathtub church tower alley track court".split()
)
_UNCOUNTED = frozenset("water snow grass sand dirt mud gravel".split())
_PATCH = 0.2  # share of other pictures in which a patch is filled, too, so that filling gives nothing away


def left_over(captions: Sequence[str]) -> str | None:
    """A sentence about the things that captions agree on and that stay; None where there are none."""
    told = Counter(word for caption in captions for word in set(words_of([caption])))
    kept = sorted(word for word in told if told[word] >= _AGREED and word in _STAYS)
    chosen = sorted(kept, key=lambda word: -told[word])[:2]
    if not chosen:
        return None
    text = " and ".join(_phrase(word) for word in chosen)
    return f"{text[:1].upper()}{text[1:]}."


def _phrase(word: str) -> str:
    if word in _UNCOUNTED or (word.endswith("s") and not word.endswith("ss")):
        return f"some {word}"
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def filling(people: Tensor, without: Tensor) -> Tensor:
    """For every cell, the cell of the same picture that is shown in its place [B, N].

    people [B, N] are logits; without [B] says which pictures lose their people. In others a patch beside the people is
    filled now and then.
    """
    rows, cells = people.shape
    grid = round(cells**0.5)
    there = people > _SEEN
    patch = _rectangles(rows, grid, people.device) & (torch.rand(rows, 1, device=people.device) < _PATCH)
    filled = torch.where(without[:, None], there | patch, patch & ~there)
    # a picture full of people keeps what shows them least
    calm = ~there | (people <= people.kthvalue(max(1, cells // 4), 1, keepdim=True).values)
    drawn = torch.rand(rows, cells, cells, device=people.device) * calm[:, None]
    itself = torch.arange(cells, device=people.device)
    return torch.where(filled, drawn.argmax(-1), itself)


def _rectangles(rows: int, grid: int, device: torch.device) -> Tensor:
    axis = (torch.arange(grid, device=device) + 0.5) / grid
    centre, half = torch.rand(2, rows, device=device), torch.rand(2, rows, device=device) * 0.25 + 0.1
    down, across = ((axis - centre[i, :, None]).abs() < half[i, :, None] for i in (0, 1))
    return (down[:, :, None] & across[:, None]).flatten(1)
