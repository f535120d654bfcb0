"""Plans training batches of pairs of scenes, of clips and of single scenes, in worker processes; no pixels here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerFast

from ercr.datasets import moving, pairs
from ercr.datasets.scenes.compose import MOST, pack
from ercr.datasets.scenes.dataset import plan as plan_scene
from ercr.datasets.scenes.layout import SHAPES, Layout
from ercr.datasets.scenes.pictograms import PICTOGRAMS

from .batches import Batch, facts_of
from .tokens import FIRST_SEED, PROMPTS, Speech

KINDS, SHARES = ("pair", "clip", "scene"), (0.4, 0.45, 0.15)
_NONE = torch.empty(0, dtype=torch.long)


@dataclass
class Part:
    """Pictures of one size, or clips, with what is in them; `path` [B, frames, MOST, 2] moves the things of clips."""

    facts: Batch
    path: Tensor | None = None

    def to(self, device: torch.device) -> Part:
        return Part(self.facts.to(device), None if self.path is None else self.path.to(device))


@dataclass
class Planned:
    """Samples of one kind and shape: what is shown, one part after another, and the words behind it."""

    kind: str
    parts: list[Part]
    text: Tensor  # [B, T]
    labels: Tensor  # [B, T]

    def to(self, device: torch.device) -> Planned:
        return Planned(self.kind, [p.to(device) for p in self.parts], self.text.to(device), self.labels.to(device))


class ClipsPlanner(IterableDataset):  # type: ignore[type-arg]
    """An endless stream of batches; every worker draws from seeds of its own."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, speech: Speech, size: int, styles: int, first: int = 0
    ) -> None:
        self.tokenizer, self.speech, self.size, self.styles, self.first = tokenizer, speech, size, styles, first

    def __iter__(self) -> Iterator[Planned]:
        worker = get_worker_info()
        number = worker.id if worker else 0
        torch.set_num_threads(1)
        seed = FIRST_SEED + (self.first * 64 + number) * 10_000_000
        rng = random.Random(seed)
        while True:
            kind = rng.choices(KINDS, SHARES)[0]
            yield self.batch(rng, kind, seed)
            seed += self.size

    def batch(self, rng: random.Random, kind: str, seed: int) -> Planned:
        """A batch of a kind, of the seeds from one on."""
        scale = rng.choice((*[1.0] * 6, 0.75, 0.5, rng.uniform(0.45, 1.0)))
        return getattr(self, f"_{kind}s")(rng, range(seed, seed + self.size), scale)  # type: ignore[no-any-return]

    def _pairs(self, rng: random.Random, seeds: range, scale: float) -> Planned:
        shapes = rng.choice(SHAPES), rng.choice(SHAPES)
        plans = sorted((pairs.plan(seed, shapes) for seed in seeds), key=lambda one: -len(one.layouts[0].objects))
        parts = [self._part(rng, [one.layouts[i] for one in plans], scale) for i in range(2)]
        return Planned("pair", parts, *self._words([(one.prompt, one.answer) for one in plans]))

    def _clips(self, rng: random.Random, seeds: range, scale: float) -> Planned:
        shape = rng.choice(moving.SHAPES)
        plans = sorted((moving.plan(seed, shape) for seed in seeds), key=lambda one: -len(one.movers))
        firsts = [one.layouts()[0] for one in plans]
        path = np.zeros((len(plans), moving.FRAMES, MOST, 2), np.float32)
        for clip, one in zip(path, plans, strict=True):
            for slot, mover in enumerate(one.movers):
                clip[:, slot] = 1 - 2 * np.array(mover.path, np.float32) / shape
        part = replace(self._part(rng, firsts, scale), path=torch.from_numpy(path))
        return Planned("clip", [part], *self._words([(rng.choice(moving.PROMPTS), one.caption) for one in plans]))

    def _scenes(self, rng: random.Random, seeds: range, scale: float) -> Planned:
        shape = rng.choice(SHAPES)
        plans = sorted((plan_scene(seed, shape=shape) for seed in seeds), key=lambda one: -len(one[0].objects))
        asked = [(rng.choice(PROMPTS) if rng.random() < 0.4 else PROMPTS[0], caption) for _, caption in plans]
        return Planned("scene", [self._part(rng, [layout for layout, _ in plans], scale)], *self._words(asked))

    def _part(self, rng: random.Random, layouts: list[Layout], scale: float) -> Part:
        packed = pack(layouts, [self._styles(rng) for _ in layouts], len(PICTOGRAMS))
        return Part(Batch(packed, *facts_of(layouts), _NONE, _NONE, scale))

    def _styles(self, rng: random.Random) -> list[int]:
        one = rng.randrange(self.styles)
        return [one if rng.random() < 0.8 else rng.randrange(self.styles) for _ in range(MOST)]

    def _words(self, asked: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
        """Questions and answers as token ids, padded on the right, and what is to be learned of them."""
        encode = lambda text: self.tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
        end = self.tokenizer.convert_tokens_to_ids(self.speech.end)
        rows = [(encode(self.speech.after.format(prompt=q)), [*encode(self.speech.lead + a), end]) for q, a in asked]
        length = (max(len(q) + len(a) for q, a in rows) + 7) // 8 * 8
        text = np.full((len(rows), length), self.tokenizer.pad_token_id, np.int64)
        labels = np.full((len(rows), length), -100, np.int64)
        for row, (question, answer) in enumerate(rows):
            stop = len(question) + len(answer)
            text[row, :stop] = question + answer
            labels[row, len(question) : stop] = answer
        return torch.from_numpy(text), torch.from_numpy(labels)
