"""The trained parts and their loss: tower, projector, low-rank updates of the language model, and the lens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ercr.models.towers.efficientnet_lite import EfficientNetLiteConfig, EfficientNetLiteModel

from .backbone import load_backbone
from .decoder import Decoder
from .erased import filling
from .invented import evidence
from .lens import Lens
from .words import learnt_words

RANK = 22
_WORD_GAIN = 2.0  # length of a class's word vector beside the language model's own
_SMOOTHING = 0.1  # of the captions' tokens
# six thousand pictures are soon learnt by heart, so a picture never comes twice the same:
_LEANING = 1.5  # towards or away from each class, in logits
_KEPT = 0.8  # share of the features, others in each step


def class_words() -> list[str]:
    """An everyday word for each of ImageNet's thousand classes, in their order, and for each of the learnt ones."""
    known = (Path(__file__).parent / "class_words.txt").read_text(encoding="utf-8").split()
    return known + [names[0] for names, _ in learnt_words()]


def words_of_classes() -> list[list[str]]:
    """All words that stand for each class: its own, and the other forms and names that people use for it."""
    lines = (Path(__file__).parent / "other_words.txt").read_text(encoding="utf-8").splitlines()
    groups = [line.split() for line in lines]
    groups += [names for names, _ in learnt_words()]
    return [[word, *(other for group in groups if word in group for other in group)] for word in class_words()]


@dataclass(frozen=True)
class Losses:
    total: Tensor
    captions: Tensor | None = None  # the parts, where there are several
    lens: Tensor | None = None
    named: Tensor | None = None
    quiet: Tensor | None = None


class PhotoModel(nn.Module):
    def __init__(self, llama: Any, words: dict[str, int], silent: Sequence[int], precision: torch.dtype) -> None:
        super().__init__()
        width = llama.config.hidden_size
        self.decoder = Decoder(llama, RANK, precision)
        self.tower = EfficientNetLiteModel(EfficientNetLiteConfig(word_size=width, learnt=len(learnt_words())))
        self.linear_1 = nn.Linear(self.tower.config.hidden_size, width)
        self.linear_2 = nn.Linear(width, width)
        self.lens = Lens(words, words_of_classes(), self.decoder.table, silent)
        self.lens_weight, self.named_weight, self.quiet_weight = 0.1, 1.0, 2.0

    def begin(self, backbone: Path, tokenizer: Any) -> None:
        """Before the first step a visual token is the mixture of its class words, and nothing else."""
        load_backbone(self.tower, backbone)
        table = self.decoder.table.float()
        vectors = [table[tokenizer(f" {word}", add_special_tokens=False).input_ids].mean(0) for word in class_words()]
        with torch.no_grad():
            self.tower.words.weight.copy_(torch.stack(vectors).T * _WORD_GAIN)
            nn.init.normal_(self.tower.neck.weight, std=self.tower.neck.in_features**-0.5)
            nn.init.normal_(self.linear_1.weight, std=0.001)
            self.linear_1.weight[:, self.tower.config.neck_size :] = torch.eye(self.linear_1.out_features)
            self.linear_2.weight.copy_(torch.eye(self.linear_2.out_features))
            for bias in (self.tower.neck.bias, self.linear_1.bias, self.linear_2.bias):
                bias.zero_()

    def groups(self, rates: Sequence[float]) -> list[dict[str, Any]]:
        """Parameters by how fast they learn: the new parts, and the language model's updates; the rest is frozen."""
        fresh = [*self.tower.neck.parameters(), *self.tower.middle_norm.parameters(), *self.tower.top_norm.parameters()]
        fresh += [*self.linear_1.parameters(), *self.linear_2.parameters()]
        self.requires_grad_(False)
        named = list(zip((fresh, list(self.decoder.parameters())), rates, strict=True))
        for parameters, _ in named:
            for parameter in parameters:
                parameter.requires_grad_(True)
        return [{"params": parameters, "lr": rate, "base": rate} for parameters, rate in named]

    def see(self, pixels: Tensor) -> Tensor:
        """Visual tokens as the language model takes them."""
        return self.project(*self.read(pixels))

    def read(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Features of every cell, and the frozen classifier's logits."""
        with _half(pixels):
            with torch.no_grad():
                middle, top = self.tower.maps(pixels)
                logits = self.tower.classifier(top).float()
            return self.tower.features(middle, top), logits

    def project(self, features: Tensor, logits: Tensor) -> Tensor:
        with _half(features):
            visual = self.linear_2(self.linear_1(self.tower.join(features, logits)))
        return visual.to(self.decoder.precision)

    def forward(
        self, pixels: Tensor, before: Tensor, ids: Tensor, labels: Tensor, start: Tensor, said: Tensor, classes: Tensor,
        without: Tensor, keep: Tensor,
    ) -> Losses:  # fmt: skip
        features, logits = fill(*self.read(pixels), without, self.tower.config.classes)
        visual = self.project(*disturb(features, logits, classes, keep))
        seen, spoken = self._states(visual, before, ids, labels, start)
        pictured = torch.arange(len(pixels), device=pixels.device) >= len(classes)
        real, shown = (pictured & ~without).float(), (pictured & (keep > 0)).float()
        captions = F.cross_entropy(spoken.flatten(0, 1), labels.flatten(), label_smoothing=_SMOOTHING)
        lens, named, quiet = self.lens(seen, said, logits, real, shown)
        total = captions + self.lens_weight * lens + self.named_weight * named + self.quiet_weight * quiet
        return Losses(total, captions, lens, named, quiet)

    def reinforce(
        self, pixels: Tensor, before: Tensor, ids: Tensor, labels: Tensor, start: Tensor, worth: Tensor
    ) -> Losses:
        """Of captions that were drawn: those that are worth more than nothing become likelier, others less so."""
        _, spoken = self._states(self.see(pixels), before, ids, labels, start)
        each = F.cross_entropy(spoken.transpose(1, 2), labels, reduction="none").sum(1)
        return Losses((each * worth).sum() / (labels >= 0).sum())

    def _states(
        self, visual: Tensor, before: Tensor, ids: Tensor, labels: Tensor, start: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Last states of the visual tokens, and the logits of each token of a caption."""
        front = self.decoder.embed(before).expand(len(visual), -1, -1)
        states = self.decoder(torch.cat([front, visual, self.decoder.embed(ids)], 1))
        first, cells = front.shape[1], visual.shape[1]
        # the state before each token of a caption predicts it
        at = (first + cells + start - 1)[:, None] + torch.arange(labels.shape[1], device=labels.device)
        spoken = states.gather(1, at[..., None].expand(-1, -1, states.shape[-1]))
        return states[:, first : first + cells], F.linear(spoken, self.decoder.table).float()


def fill(features: Tensor, logits: Tensor, without: Tensor, people: int) -> tuple[Tensor, Tensor]:
    """Cells filled with others of their picture (see `erased`); `people` is the classifier's class of them."""
    with torch.no_grad():
        source = filling(logits[..., people], without)[..., None]
    return features.gather(1, source.expand(features.shape)), logits.gather(1, source.expand(logits.shape))


def disturb(features: Tensor, logits: Tensor, classes: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """A training batch as the language model is shown it.

    The first rows are invented (`classes`, see `invented`). `keep` says how strongly features are shown: where they are
    hidden, the words of the classifier alone have to do.
    """
    spots = evidence(classes, math.isqrt(logits.shape[1]), logits.shape[2], len(learnt_words()))
    logits = torch.cat([spots, logits[len(classes) :]])
    logits = logits + _LEANING * torch.randn_like(logits[:, :1])
    return features * keep[:, None, None] * (torch.rand_like(features[:, :1]) < _KEPT), logits


def _half(like: Tensor) -> torch.autocast:
    return torch.autocast(like.device.type, torch.bfloat16, enabled=like.is_cuda, cache_enabled=False)
