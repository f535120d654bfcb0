"""Plans training batches in worker processes: layouts, captions and token ids; pixels are made elsewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerFast

from ercr.datasets.scenes.compose import MOST, Packed, pack
from ercr.datasets.scenes.dataset import plan
from ercr.datasets.scenes.layout import COLORS, SHAPES, Layout
from ercr.datasets.scenes.pictograms import PICTOGRAMS

from .tokens import FIRST_SEED, PROMPTS, Speech

COLOR_NAMES = tuple(COLORS)
_SIMPLE = 0.5  # share of the easy scenes that is shown: numbers and crowds are what a model learns last


@dataclass
class Batch:
    """Scenes of one shape before they are drawn, with the words that follow the picture."""

    packed: Packed
    noun: Tensor  # [B, MOST], -1 where there is no object
    count: Tensor  # [B, MOST] how many objects share the noun
    tint: Tensor  # [B, MOST], -1 for an object in its own colours
    background: Tensor  # [B]
    text: Tensor  # [B, T] question and answer, padded on the right
    labels: Tensor  # [B, T], -100 where nothing is to be learned
    scale: float  # of the view: 1 shows the picture as it is

    def to(self, device: torch.device) -> Batch:
        moved = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, (Tensor, Packed))}
        return Batch(**{**vars(self), **moved})


class Planner(IterableDataset):  # type: ignore[type-arg]
    """An endless stream of batches; every worker draws from seeds of its own."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, speech: Speech, size: int, styles: int, first: int = 0
    ) -> None:
        self.tokenizer, self.speech, self.size, self.styles, self.first = (
            tokenizer,
            speech,
            size,
            styles,
            first,
        )

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        number = worker.id if worker else 0
        torch.set_num_threads(1)
        seed = FIRST_SEED + (self.first * 64 + number) * 10_000_000
        rng = random.Random(seed)
        questions = [self._ids(self.speech.after.format(prompt=prompt)) for prompt in PROMPTS]
        while True:
            shape = rng.choice(SHAPES)
            plans: list[tuple[Layout, str]] = []
            while len(plans) < self.size:
                planned = plan(seed, shape=shape)
                seed += 1
                if _crowded(planned[0]) or rng.random() < _SIMPLE:
                    plans.append(planned)
            plans.sort(key=lambda one: -len(one[0].objects))  # so that each slot is drawn only where it is used
            yield self._batch(rng, plans, questions)

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _batch(self, rng: random.Random, plans: list[tuple[Layout, str]], questions: list[list[int]]) -> Batch:
        layouts = [layout for layout, _ in plans]
        packed = pack(layouts, [self._styles(rng) for _ in layouts], len(PICTOGRAMS))
        text, labels = self._words(rng, [caption for _, caption in plans], questions)
        scale = rng.choice((*[1.0] * 6, 0.75, 0.5, rng.uniform(0.45, 1.0)))
        return Batch(packed, *facts_of(layouts), text, labels, scale)

    def _styles(self, rng: random.Random) -> list[int]:
        one = rng.randrange(self.styles)
        return [one if rng.random() < 0.8 else rng.randrange(self.styles) for _ in range(MOST)]

    def _words(self, rng: random.Random, captions: list[str], questions: list[list[int]]) -> tuple[Tensor, Tensor]:
        ask = [rng.choice(questions) if rng.random() < 0.4 else questions[0] for _ in captions]
        end = self.tokenizer.convert_tokens_to_ids(self.speech.end)
        answers = [[*self._ids(self.speech.lead + caption), end] for caption in captions]
        length = max(len(q) + len(a) for q, a in zip(ask, answers, strict=True))
        length = (length + 7) // 8 * 8
        pad = self.tokenizer.pad_token_id
        text = np.full((len(captions), length), pad, np.int64)
        labels = np.full((len(captions), length), -100, np.int64)
        for row, (question, answer) in enumerate(zip(ask, answers, strict=True)):
            stop = len(question) + len(answer)
            text[row, :stop] = question + answer
            labels[row, len(question) : stop] = answer
        return torch.from_numpy(text), torch.from_numpy(labels)


def _crowded(layout: Layout) -> bool:
    """Whether a scene has four objects or more, or one of them more than once."""
    nouns = [placed.noun for placed in layout.objects]
    return len(nouns) > 3 or len(set(nouns)) < len(nouns)


def facts_of(layouts: list[Layout]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Noun, count and tint of every object, and the background's colour."""
    noun = np.full((len(layouts), MOST), -1, np.int64)
    count = np.zeros((len(layouts), MOST), np.int64)
    tint = np.full((len(layouts), MOST), -1, np.int64)
    for b, layout in enumerate(layouts):
        nouns = [placed.noun for placed in layout.objects]
        for k, placed in enumerate(layout.objects):
            noun[b, k] = placed.noun
            count[b, k] = nouns.count(placed.noun)
            if placed.tint:
                tint[b, k] = COLOR_NAMES.index(placed.tint)
    back = torch.tensor([COLOR_NAMES.index(layout.background) for layout in layouts])
    return torch.from_numpy(noun), torch.from_numpy(count), torch.from_numpy(tint), back
