"""Captions of many pictures at once by the training's own decoder, to see how far it is."""

from __future__ import annotations

import torch
from torch import Tensor

from .augment import normalise
from .model import PhotoModel


@torch.no_grad()
def captions(
    model: PhotoModel,
    pictures: Tensor,
    before: list[int],
    prompt: list[int],
    end: int,
    longest: int = 24,
    batch: int = 250,
) -> list[list[int]]:
    """Greedy captions as token numbers; without a cache, which for so few tokens is quick enough."""
    device, found = next(model.parameters()).device, []
    for part in pictures.split(batch):
        visual = model.see(normalise(part.to(device).float()))
        start = model.decoder.embed(torch.tensor([before], device=device)).expand(len(part), -1, -1)
        ids = torch.tensor([prompt], device=device).repeat(len(part), 1)
        over = torch.zeros(len(part), dtype=torch.bool, device=device)
        for _ in range(longest):
            states = model.decoder(torch.cat([start, visual, model.decoder.embed(ids)], 1))
            word = (states[:, -1] @ model.decoder.table.T).argmax(-1)
            word = torch.where(over, end, word)
            over |= word == end
            ids = torch.cat([ids, word[:, None]], 1)
            if bool(over.all()):
                break
        said = ids[:, len(prompt) :].tolist()
        found += [one[: one.index(end)] if end in one else one for one in said]
    return found
