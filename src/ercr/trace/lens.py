"""How strongly visual tokens spell given words: rank, probability and size of a word's logit, over some layers.

Logits over the whole vocabulary are computed only at the few visual tokens that spell a word most strongly. Which these
are is found with the words' own logits and a sample of the vocabulary. Runs no model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ercr.models.base import Adapter
from ercr.trace.ranked import logits, vocabulary_size

_SAMPLE = 2048  # words that stand for the vocabulary
_PLACES = 4  # visual tokens per word, layer and way of finding them, at which all logits are computed
_AT_ONCE = 2**24  # logits in memory at once


def lens_layers(adapter: Adapter, depths: Sequence[float] | None) -> list[int]:
    """The layers before the last one at some depths (0..1) of the decoder, as Hugging Face counts hidden_states."""
    count = len(adapter.blocks)
    return sorted({max(1, round(depth * count)) for depth in depths or ()} - {count})


@dataclass(frozen=True)
class Spelt:
    """How one word's token is spelt at the visual tokens, for all of an answer's tokens [R]."""

    size: Tensor  # highest logit in the last layer, in standard deviations of the vocabulary's from their mean
    mean: Tensor  # the same logit as a mean over all visual tokens: large things are spelt in many places
    probability: Tensor  # highest probability in the last layer
    rank: Tensor  # best rank there, from 1
    best_probability: Tensor  # over all layers that were read
    best_rank: Tensor
    focus: Tensor  # 0..1: how far the best visual token stands out, after what the answer's words share was removed
    lead: Tensor | None  # how far `size` is above that of the word's rivals, on average


@dataclass(frozen=True)
class Rivals:
    """What the model would rather or also have said in the place of each of an answer's tokens."""

    words: Tensor  # [R, k]
    shares: Tensor  # [R, k] how probable they were


@torch.no_grad()
def spelt(
    adapter: Adapter, states: Sequence[Tensor], targets: Sequence[Tensor], rivals: Sequence[Rivals] | None = None
) -> list[Spelt]:
    """For each sample the states [K, N, d] of its visual tokens behind the final norm, and the words' tokens [R]."""
    sample = _vocabulary_sample(adapter, states[0].device)
    others = [None] * len(states) if rivals is None else rivals
    return [
        _of_sample(adapter, one, words.to(one.device), sample, other)
        for one, words, other in zip(states, targets, others, strict=True)
    ]


def _of_sample(adapter: Adapter, states: Tensor, words: Tensor, sample: Tensor, rivals: Rivals | None) -> Spelt:
    layers, count = states.shape[:2]
    wide = states.flatten(0, 1).to(torch.promote_types(states.dtype, torch.float32))  # [K * N, d]
    rows = torch.cat([sample, words, *([] if rivals is None else [rivals.words.to(words).flatten()])])
    found = adapter.adjust(_own_logits(adapter, wide, rows)).view(layers, count, -1)
    others, every = found[..., : len(sample)], found[..., len(sample) :]
    own, both = every[..., : len(words)], _sizes(every, others)
    sizes, theirs = both[..., : len(words)], both[..., len(words) :]
    likely = own - others.logsumexp(-1, keepdim=True), sizes  # [K, N, R] each
    places = torch.cat([one.topk(min(_PLACES, count), dim=1).indices for one in likely], dim=1)  # [K, 2 P, R]
    rank, log_probability = _exactly(adapter, wide, own, places, words)
    return Spelt(
        size=sizes[-1].amax(0),
        mean=sizes[-1].mean(0),
        probability=log_probability[-1].exp(),
        rank=rank[-1],
        best_probability=log_probability.amax(0).exp(),
        best_rank=rank.amin(0),
        focus=_focus(own[-1]),
        lead=None if rivals is None else _lead(sizes[-1], theirs[-1], words, rivals),
    )


@torch.no_grad()
def vocabulary_sizes(adapter: Adapter, states: Tensor) -> tuple[Tensor, Tensor]:
    """`size` and `mean` [V] of every token of the vocabulary, from last states [N, d] of visual tokens."""
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    every = adapter.adjust(_own_logits(adapter, wide, torch.arange(vocabulary_size(adapter))))
    found = _sizes(every, every[:, _vocabulary_sample(adapter, states.device)])
    return found.amax(0), found.mean(0)


def _sizes(logits: Tensor, others: Tensor) -> Tensor:
    """Logits [..., R] in standard deviations of those of other words at the same places [..., S], from their mean."""
    spread, middle = torch.std_mean(others, dim=-1, keepdim=True)
    return (logits - middle) / spread.clamp(min=1e-6)


def _lead(sizes: Tensor, others: Tensor, words: Tensor, rivals: Rivals) -> Tensor:
    """From sizes [N, R] of words and those [N, R * k] of their rivals; a word is not its own rival."""
    best = others.amax(0).view(rivals.words.shape)
    shares = rivals.shares.to(best) * (rivals.words.to(words) != words[:, None])
    return sizes.amax(0) - (best * shares).sum(1) / shares.sum(1).clamp(min=1e-9)


def _own_logits(adapter: Adapter, states: Tensor, rows: Tensor) -> Tensor:
    """Logits [M, R] of some rows of the head."""
    weight = adapter.unembedding_rows(rows).to(states)
    bias = getattr(adapter.head, "bias", None)
    return states @ weight.T if bias is None else states @ weight.T + bias[rows.to(bias.device)].to(states)


def _exactly(adapter: Adapter, states: Tensor, own: Tensor, places: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Best rank [K, R] and highest log-probability [K, R] of each word over its places [K, P, R] in each layer."""
    layers, count, _ = own.shape
    flat = places + count * torch.arange(layers, device=places.device)[:, None, None]
    mine = own.gather(1, places)  # [K, P, R]
    wanted, at = torch.unique(flat, return_inverse=True)
    rank, total = torch.empty_like(mine), own.new_empty(len(wanted))
    size = vocabulary_size(adapter)
    step = max(1, _AT_ONCE // size)
    for start in range(0, len(wanted), step):
        part = wanted[start : start + step]
        every = adapter.adjust(logits(adapter, states[part].to(_precision(adapter)))[:, :size].float())
        total[start : start + step] = every.logsumexp(-1).to(total)
        here = ((at >= start) & (at < start + step)).nonzero(as_tuple=True)
        for pairs in zip(*(axis.split(step) for axis in here), strict=True):
            higher = every[at[pairs] - start] > mine[pairs][:, None].to(every)
            rank[pairs] = higher.sum(-1).to(rank)
    return 1 + rank.amin(1), (mine - total[at]).amax(1)


def _precision(adapter: Adapter) -> torch.dtype:
    weight: Tensor | None = getattr(adapter.head, "weight", None)
    return torch.float32 if weight is None or not weight.is_floating_point() else weight.dtype


def _focus(own: Tensor) -> Tensor:
    """How compact each word's evidence is where earlier words do not explain it; `own` are logits [N, R] of words.

    The mean map of the earlier words is fitted and taken away. Over the softmax of what is left, the entropy is 0 if
    one visual token has all of it, and log N if all have the same: 1 - entropy / log N.
    """
    centred = own - own.mean(0)
    before = centred.cumsum(1) - centred
    slope = (centred * before).sum(0) / before.square().sum(0).clamp(min=1e-9)
    shares = (centred - slope.clamp(min=0) * before).log_softmax(0)
    entropy = -(shares.exp() * shares).sum(0)
    return 1 - entropy / math.log(max(len(own), 2))


@lru_cache(maxsize=8)
def _drawn(size: int) -> Tensor:
    drawn = torch.randperm(size, generator=torch.Generator().manual_seed(0))[:_SAMPLE]
    return drawn.sort().values


def _vocabulary_sample(adapter: Adapter, device: torch.device) -> Tensor:
    """Some tokens of the vocabulary, always the same ones for a model; all of a small vocabulary."""
    return _drawn(vocabulary_size(adapter)).to(device)
