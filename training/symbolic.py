"""Writes a scene as words on the token grid: the image a language model can learn from before it can see.

Every cell is the sum of the embeddings of what it covers, each weighted by the share it covers. So the same
words that the model will say are what its visual tokens are made of, and can be read there afterwards.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from .batches import COLOR_NAMES, Batch
from .families import WIDTH, Seen
from .tokens import noun_tokens

NUMBER_WORDS = (" two", " three", " four", " five")
_TINT, _COUNT, _GROUND, _PLACE = 0.35, 0.3, 0.7, 0.3


class Symbols:
    """The fixed tables that turn facts into vectors of the language model's own embedding."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, device: torch.device, placed: bool) -> None:
        pieces = noun_tokens(tokenizer)
        longest = max(map(len, pieces))
        first = lambda word: tokenizer.encode(word, add_special_tokens=False)[0]  # noqa: E731
        self.nouns = torch.tensor([p + [p[0]] * (longest - len(p)) for p in pieces], device=device)
        weights = [[1 / math.sqrt(len(p))] * len(p) + [0.0] * (longest - len(p)) for p in pieces]
        self.weights = torch.tensor(weights, device=device)
        self.colors = torch.tensor([first(" " + name) for name in COLOR_NAMES], device=device)
        self.numbers = torch.tensor([first(word) for word in NUMBER_WORDS], device=device)
        said = [first(word.strip().capitalize()) for word in NUMBER_WORDS]
        self.content = torch.tensor(sorted({*chain(*pieces), *said, *self.numbers.tolist()}), device=device)
        self.vocabulary = len(tokenizer)
        self.directions = self._directions(device) if placed else None

    @staticmethod
    def _directions(device: torch.device) -> Tensor:
        """Eight fixed orthogonal directions that tell where a cell is, for families whose positions do not."""
        generator = torch.Generator().manual_seed(0)
        basis = torch.linalg.qr(torch.randn(WIDTH, 8, generator=generator))[0].T
        return (basis * _PLACE).to(device)

    def emphasis(self, weight: float) -> Tensor:
        """A weight per token of the vocabulary: `weight` for nouns and numbers, 1 for all others."""
        weights = torch.ones(self.vocabulary, device=self.content.device)
        weights[self.content] = weight
        return weights

    def prototypes(self, table: Tensor) -> Tensor:
        """One vector per noun [nouns, WIDTH]: its subwords' embeddings, scaled as if they were one."""
        return (F.embedding(self.nouns, table) * self.weights[..., None]).sum(1)

    def write(self, table: Tensor, batch: Batch, seen: Seen, rough: bool) -> Tensor:
        """The cells [B, N, WIDTH] of a batch; `rough` blurs them as an unsure eye would."""
        table = table.float()
        nouns = self.prototypes(table)
        objects = F.embedding(batch.noun.clamp(min=0), nouns)
        if rough:
            other = F.embedding(torch.randint(len(nouns), batch.noun.shape, device=nouns.device), nouns)
            share = torch.rand(batch.noun.shape, device=nouns.device) * 0.5
            share = (share * (torch.rand_like(share) < 0.4))[..., None]
            objects = (1 - share) * objects + share * other
        tint = F.embedding(self.colors[batch.tint.clamp(min=0)], table) * (batch.tint >= 0)[..., None]
        count = F.embedding(self.numbers[(batch.count - 2).clamp(0, 3)], table) * (batch.count >= 2)[..., None]
        objects = objects + _TINT * tint + _COUNT * count  # [B, MOST, WIDTH]
        covered, content = seen.cells[..., :-1], seen.cells[..., -1:]
        empty = (content - covered.sum(-1, keepdim=True)).clamp(min=0)
        ground = _GROUND * F.embedding(self.colors[batch.background], table)[:, None]
        cells = covered @ objects + empty * ground
        if rough:
            level = table.detach().pow(2).mean().sqrt() * torch.rand(len(cells), 1, 1, device=cells.device)
            cells = cells * (torch.rand_like(content) > 0.08) + 0.6 * level * torch.randn_like(cells)
        return cells + self.places(seen.corners)

    def places(self, corners: Tensor) -> Tensor | float:
        if self.directions is None:
            return 0.0
        turns = torch.cat([corners * math.pi, corners * 2 * math.pi], -1)
        return torch.cat([turns.sin(), turns.cos()], -1) @ self.directions


def dense_loss(symbols: Symbols, table: Tensor, visual: Tensor, batch: Batch, seen: Seen) -> Tensor:
    """How far visual tokens are from the words of what they cover; objects and background weigh the same."""
    table = table.detach().float()
    target = symbols.write(table, batch, seen, rough=False)
    covered = seen.cells[..., :-1]
    share = covered.sum(-1)  # [B, N]
    weight = torch.where(share > 0.15, 1.0 / share.gt(0.15).float().mean().clamp(min=0.02), 1.0)
    weight = weight / weight.mean()
    scale = table[symbols.nouns[:, 0]].pow(2).mean()
    error = (visual.float() - target).pow(2).mean(-1) / scale
    return (error * weight).mean() + 0.3 * _naming_loss(symbols, table, visual, batch, covered)


def lens_loss(symbols: Symbols, table: Tensor, hidden: Tensor, batch: Batch, seen: Seen) -> Tensor:
    """How badly a noun's subwords can be read from the final states of the cells that it covers, and only there.

    Only nouns of the scene are asked for: what function words show at visual tokens is left as it falls.
    """
    there = batch.noun >= 0
    index = batch.noun.clamp(min=0)
    rows = F.embedding(symbols.nouns[index], table)  # [B, MOST, subwords, WIDTH]
    count, slots, pieces = rows.shape[:3]
    scores = torch.bmm(hidden, rows.flatten(1, 2).transpose(1, 2).to(hidden.dtype)).float()
    same = ((batch.noun[:, :, None] == batch.noun[:, None]) & there[:, None]).float()
    target = (seen.cells[..., :-1] @ same).clamp(0, 1)[..., None].expand(-1, -1, -1, pieces).flatten(2)
    error = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
    inside = (target > 0.3).float()
    on = (error * inside).sum(1) / inside.sum(1).clamp(min=1)
    off = (error * (1 - inside)).sum(1) / (1 - inside).sum(1).clamp(min=1)
    asked = (there[..., None] & (symbols.weights[index] > 0)).reshape(count, slots * pieces).float()
    return ((on + off) * asked).sum() / asked.sum().clamp(min=1)


def _naming_loss(symbols: Symbols, table: Tensor, visual: Tensor, batch: Batch, covered: Tensor) -> Tensor:
    """Cross-entropy of the noun that fills most of a cell, over all nouns, where one fills a third or more."""
    nouns = symbols.prototypes(table)
    nouns = nouns - nouns.mean(0)
    most, slot = covered.max(-1)
    name = batch.noun.gather(1, slot.flatten(1)).reshape(slot.shape)
    chosen = (most > 0.34) & (name >= 0)
    scores = visual[chosen].float() @ nouns.T * (8.0 / nouns.pow(2).sum(-1).mean())
    loss: Any = F.cross_entropy(scores, name[chosen])
    return loss if chosen.any() else scores.sum() * 0
