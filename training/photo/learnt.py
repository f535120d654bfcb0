"""Classes that captions have and ImageNet does not: people, and kinds of ground.

Nobody is named in ImageNet and few of Flickr8k's pictures are without people, so a language model that learns from
captions alone says "a man" of any room. A linear classifier of the same features distinguishes them better: on
cells, with only the captions of whole pictures to learn from, and with most features hidden in each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ercr.models.towers.efficientnet_lite import EfficientNetLiteModel

from .augment import SIZES, augment
from .words import learnt_words, shows, words_of

_STEPS, _BATCH, _RATE, _DECAY = 600, 128, 1e-3, 0.1
_HIDDEN = 0.8  # share of the features in each step
_SHARPNESS = 2.0  # of the pooling: 0 is the mean of all cells, a large number the best cell
_SURELY = 2  # captions of a picture that must say it; one alone says nothing
_OFTEN = {"people": 1.0, "dogs": 0.6, "neither": 6.0}  # how much a picture counts, by what it shows
_ABSENT, _PRESENT = 1.0, 12.0  # ImageNet's classes have such a logit in the best cell of a picture


def learn(tower: EfficientNetLiteModel, pictures: Tensor, captions: Sequence[Sequence[str]]) -> None:
    """Fill the last rows of the tower's classifier."""
    device = tower.classifier.weight.device
    told, known = (part.to(device) for part in _labels(captions))
    counts = torch.tensor([_OFTEN[shows(group)] for group in captions], device=device)
    stored = pictures.to(device)
    middle, spread = _moments(tower, stored[:512])
    head = nn.Linear(tower.classifier.in_features, told.shape[1]).to(device)
    nn.init.zeros_(head.weight)
    optimizer = torch.optim.AdamW(head.parameters(), _RATE, weight_decay=_DECAY)
    for step in range(_STEPS):
        optimizer.param_groups[0]["lr"] = _RATE * (1 - step / _STEPS)
        rows = torch.randint(len(stored), (min(_BATCH, len(stored)),), device=device)
        top = _seen(tower, augment(stored[rows], SIZES[step % len(SIZES)]))
        scores = _pooled(head(F.dropout((top - middle) / spread, _HIDDEN)))
        each = F.binary_cross_entropy_with_logits(scores, told[rows].float(), reduction="none") * known[rows]
        optimizer.zero_grad()
        (each.sum(1) * counts[rows]).mean().backward()
        optimizer.step()
    _write(tower, head, middle, spread, stored, told, known)


def _labels(captions: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
    """Which classes a picture shows, and where its captions agree about it [pictures, classes]."""
    words = [[set(words_of([caption])) for caption in group] for group in captions]
    times = torch.tensor([[sum(bool(one & all_) for one in group) for _, all_ in learnt_words()] for group in words])
    return times >= _SURELY, (times == 0) | (times >= _SURELY)


@torch.no_grad()
def _seen(tower: EfficientNetLiteModel, pixels: Tensor) -> Tensor:
    return tower.maps(pixels)[1]


def _pooled(cells: Tensor) -> Tensor:
    return (torch.logsumexp(cells * _SHARPNESS, 1) - math.log(cells.shape[1])) / _SHARPNESS


def _moments(tower: EfficientNetLiteModel, pictures: Tensor) -> tuple[Tensor, Tensor]:
    parts = torch.cat([_seen(tower, augment(part, SIZES[0])) for part in pictures.split(_BATCH)])
    return parts.mean((0, 1)), parts.std((0, 1)) + 0.05


@torch.no_grad()
def _write(
    tower: EfficientNetLiteModel, head: nn.Linear, middle: Tensor, spread: Tensor, pictures: Tensor, told: Tensor,
    known: Tensor,
) -> None:  # fmt: skip
    """Scaled so that the best cell of a picture has the logits that ImageNet's classes have."""
    weight = head.weight / spread
    bias = head.bias - weight @ middle
    sample = slice(0, 16 * _BATCH)
    best = [
        F.linear(_seen(tower, augment(part, SIZES[-1])), weight, bias).amax(1)
        for part in pictures[sample].split(_BATCH)
    ]
    for i, own in enumerate(torch.cat(best).T):
        agreed, shown = known[sample, i], told[sample, i]
        low, high = own[agreed & ~shown].median(), own[shown].median()
        scale = (_PRESENT - _ABSENT) / (high - low).clamp(min=0.05)
        row = tower.config.classes + i
        tower.classifier.weight[row] = weight[i] * scale
        tower.classifier.bias[row] = _ABSENT + (bias[i] - low) * scale
