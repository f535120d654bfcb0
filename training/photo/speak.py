"""Captions of many pictures at once by the training's own decoder: the likeliest, or several that are drawn."""

from __future__ import annotations

import torch
from torch import Tensor

from .augment import normalise
from .decoder import Cache
from .model import PhotoModel

_LIKELY, _WARMTH = 20, 0.8  # a word is drawn from so many, and flatter or more peaked than the model says


def captions(
    model: PhotoModel, pictures: Tensor, before: list[int], prompt: list[int], end: int, longest: int = 24,
    batch: int = 250,
) -> list[list[int]]:  # fmt: skip
    """Greedy captions as token numbers."""
    device, found = next(model.parameters()).device, []
    for part in pictures.split(batch):
        said = speak(model, normalise(part.to(device).float()), before, prompt, end, longest)
        found += [one[: one.index(end)] if end in one else one for one in said.tolist()]
    return found


@torch.no_grad()
def speak(
    model: PhotoModel, pixels: Tensor, before: list[int], prompt: list[int], end: int, longest: int = 24, draws: int = 0
) -> Tensor:
    """Tokens [pictures * max(1, draws), at most longest], ends behind the first one included."""
    decoder, device = model.decoder, pixels.device
    cache = Cache(decoder.weights())
    visual = model.see(pixels)
    front, back = (
        decoder.embed(torch.tensor([ids], device=device)).expand(len(pixels), -1, -1) for ids in (before, prompt)
    )
    state = decoder(torch.cat([front, visual, back], 1), cache)[:, -1]
    if draws:
        cache.repeat(draws)
        state = state.repeat_interleave(draws, 0)
    words: list[Tensor] = []
    over = torch.zeros(len(state), dtype=torch.bool, device=device)
    for _ in range(longest):
        word = torch.where(over, end, _choose((state @ decoder.table.T).float(), bool(draws)))
        words.append(word)
        over |= word == end
        if bool(over.all()):
            break
        state = decoder(decoder.embed(word[:, None]), cache)[:, -1]
    return torch.stack(words, 1)


def _choose(logits: Tensor, drawn: bool) -> Tensor:
    if not drawn:
        return logits.argmax(-1)
    best, which = logits.topk(min(_LIKELY, logits.shape[1]))
    return which.gather(1, torch.multinomial((best / _WARMTH).softmax(-1), 1))[:, 0]
