"""The training loop: whole steps are captured as graphs, one for each size of picture, to save launching."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from .augment import SIZES, augment
from .data import Captions, Split
from .erased import left_over
from .invented import invent
from .model import Losses, PhotoModel, class_words
from .words import shows, told_by

_INVENTED = 5  # one sample in so many
_ERASED = 8  # one in so many is a picture without its people
_POOL = 8000  # invented samples to draw from
_OFTEN = {"people": 1.0, "dogs": 0.5, "neither": 3.0}  # how often a picture comes, by what it shows


@dataclass(frozen=True)
class Plan:
    minutes: float  # of this part
    begin: float = 0.0  # how much of the whole training lies before this part, and behind it
    end: float = 1.0
    batch: int = 128
    rates: tuple[float, float] = (1.2e-3, 8e-4)  # new parts, low-rank updates
    decay: float = 0.05
    seed: int = 0


class Step:
    """Forward and backward pass for one size of picture; gradients are added to the parameters' own."""

    def __init__(self, loss: Callable[..., Losses], example: tuple[Tensor, ...], pool: Any = None) -> None:
        self.loss, self.inputs = loss, tuple(part.clone() for part in example)
        self.graph: torch.cuda.CUDAGraph | None = None
        if example[0].is_cuda:
            self._capture(pool)

    def _run(self) -> Losses:
        losses = self.loss(*self.inputs)
        losses.total.backward()
        return losses

    def _capture(self, pool: Any) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):  # kernels are chosen and buffers made before the capture
                self._run()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.losses = self._run()

    def __call__(self, inputs: tuple[Tensor, ...]) -> Losses:
        for mine, new in zip(self.inputs, inputs, strict=True):
            mine.copy_(new)
        if self.graph is None:
            return self._run()
        self.graph.replay()
        return self.losses


class Batches:
    """Draws a batch: invented samples first, then pictures without their people, then pictures as they are."""

    def __init__(self, model: PhotoModel, split: Split, captions: Captions, before: list[int], plan: Plan) -> None:
        self.device = next(model.parameters()).device
        self.captions, self.size, self.chance = captions, plan.batch, random.Random(plan.seed)
        self.invented = plan.batch // _INVENTED
        self.pictures = split.pictures.to(self.device)
        shown = [shows(group) for group in split.captions]
        self.weights = list(accumulate(_OFTEN[what] for what in shown))
        self.places = {what: [i for i, one in enumerate(shown) if (one == "people") is what] for what in (True, False)}
        self.front = torch.tensor([before], device=self.device)
        names = class_words()
        told = [invent(names, self.chance) for _ in range(_POOL)]
        self.told = [[captions.encode(one.caption)] for one in told]
        self.peopled = [shows([one.caption]) == "people" for one in told]
        self.classes = torch.tensor([(*one.classes, -1, -1)[:3] for one in told], device=self.device)
        sentences = [left_over(group) for group in split.captions]
        self.left = [i for i in self.places[True] if sentences[i]]
        self.sentences = {i: [captions.encode(sentences[i] or "")] for i in self.left}
        self.erased = plan.batch // _ERASED if self.left else 0
        words = [told_by(group) for group in (*split.captions, *([one.caption] for one in told))]
        self.said = model.lens.labels(words).to(self.device)

    def __call__(self, size: int) -> tuple[Tensor, ...]:
        told = [self.chance.randrange(_POOL) for _ in range(self.invented)]
        # features that go with an invented sample come from a picture with people, or without, as the sample is
        shown = [self.chance.choice(self.places[self.peopled[i]] or range(len(self.pictures))) for i in told]
        erased = self.chance.choices(self.left, k=self.erased) if self.erased else []
        count = self.size - self.invented - self.erased
        whole = self.chance.choices(range(len(self.pictures)), cum_weights=self.weights, k=count)
        groups = [self.told[i] for i in told] + [self.sentences[i] for i in erased]
        text = self.captions.draw([*groups, *(self.captions.ids[i] for i in whole)], self.chance)
        rows = [len(self.pictures) + i for i in told] + erased + whole
        without = [self.invented <= i < self.invented + self.erased for i in range(self.size)]
        keep = self._shares(self.invented, 0.5) + self._shares(self.size - self.invented, 0.3)
        lists = (shown + erased + whole, told, rows, without, keep)
        at, own, said, lost, kept = (torch.tensor(part).to(self.device) for part in lists)
        texts = (part.to(self.device) for part in (text.ids, text.labels, text.start))
        pixels = augment(self.pictures[at], size)
        return (pixels, self.front, *texts, self.said[said], self.classes[own], lost, kept)

    def _shares(self, count: int, hidden: float) -> list[float]:
        """How strongly features are shown: often not at all, and else a little weaker or stronger than they are.

        The language model learns pictures by heart from their features. What it reads from the classifier's words
        holds for other pictures too, so it has to do with these alone much of the time.
        """
        return [0.0 if self.chance.random() < hidden else 0.5 + self.chance.random() for _ in range(count)]


class Learner:
    """The optimizer, and ordinary steps of all sizes."""

    def __init__(self, model: PhotoModel, draw: Batches, plan: Plan) -> None:
        groups = model.groups(plan.rates)
        self.draw, self.parameters = draw, [p for group in groups for p in group["params"]]
        for parameter in self.parameters:  # for captured steps to write to
            parameter.grad = torch.zeros_like(parameter)
        cuda = draw.device.type == "cuda"
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=plan.decay, fused=cuda)
        # only one graph runs at a time, so all of them share the largest one's memory
        self.pool = torch.cuda.graph_pool_handle() if cuda else None
        self.steps = {size: Step(model, draw(size), self.pool) for size in sorted(set(SIZES), reverse=True)}

    def pace(self, done: float, warm: float) -> None:
        """Rates: a cosine over what is done, times how warm the start is."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["base"] * min(1, warm) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))

    def learn(self, other: Callable[[], Any] | None = None) -> Losses:
        """One ordinary step, together with another one's gradients where given."""
        torch._foreach_zero_([p.grad for p in self.parameters])
        if other:
            other()
        size = self.draw.chance.choice(SIZES)
        losses = self.steps[size](self.draw(size))
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimizer.step()
        return losses


def train(
    model: PhotoModel, split: Split, captions: Captions, before: list[int], plan: Plan, say: Callable[[str], None]
) -> None:
    """Train for the part's minutes; the rate follows a cosine over the whole training."""
    torch.manual_seed(plan.seed)
    learner = Learner(model, Batches(model, split, captions, before, plan), plan)
    began, count = time.monotonic(), 0
    while (done := (time.monotonic() - began) / 60 / plan.minutes) < 1:
        learner.pace(plan.begin + (plan.end - plan.begin) * done, (count + 1) / 100)
        losses = learner.learn()
        count += 1
        if count % 100 == 0 or count == 1:
            shown = ("captions", "lens", "named", "quiet")
            parts = ", ".join(f"{name} {float(getattr(losses, name).detach()):.3f}" for name in shown)
            say(f"step {count}, {done * plan.minutes:.1f} min: {parts}")
    say(f"{count} steps in {plan.minutes:g} min")
