"""Pairs of drawn scenes with a question about one of them, so that evidence has a right and a wrong picture.

No thing is in both pictures. Three of four questions ask for a description of the first or of the second picture; the
others name a thing and ask which picture shows it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from .registry import register
from .sample import Sample, Samples
from .scenes.captions import article
from .scenes.dataset import Scene, fingerprint_of_style, parse_range, scene
from .scenes.dataset import plan as plan_scene
from .scenes.layout import Layout
from .scenes.nouns import CATEGORIES, NOUNS

SIZE = 192  # side of a square with a picture's area
NUMBERS = ("first", "second")
DESCRIBE = ("What is in the {} picture?", "Describe the {} picture.", "Describe the {} picture in one sentence.")
WHICH = ("Which picture shows {}?", "In which picture is {}?")
_WHICH_SHARE = 0.25


@dataclass(frozen=True)
class PairPlan:
    """Two layouts with their captions, and a question about one of them with its answer."""

    layouts: tuple[Layout, Layout]
    seeds: tuple[int, int]  # of the scenes
    asked: int  # the picture that the question is about: 0 or 1
    prompt: str
    answer: str


@dataclass(frozen=True)
class Pair:
    """Two drawn scenes, and a question about one of them."""

    seed: int
    scenes: tuple[Scene, Scene]
    asked: int
    prompt: str
    answer: str


def plan(seed: int, shapes: tuple[tuple[int, int] | None, tuple[int, int] | None] = (None, None)) -> PairPlan:
    """The plan of a seed: two scenes without a common thing."""
    rng = random.Random(f"pair {seed}")
    seeds = [_scene_seed(seed, 0)]
    (first, caption) = plan_scene(seeds[0], SIZE, shapes[0])
    nouns = {placed.noun for placed in first.objects}
    for attempt in range(1, 1000):
        second, other = plan_scene(_scene_seed(seed, attempt), SIZE, shapes[1])
        if nouns.isdisjoint(placed.noun for placed in second.objects):
            break
    seeds.append(_scene_seed(seed, attempt))
    layouts, captions, asked = (first, second), (caption, other), rng.randrange(2)
    if rng.random() < _WHICH_SHARE:
        prompt, answer = _which(rng, layouts[asked], asked)
    else:
        prompt, answer = rng.choice(DESCRIBE).format(NUMBERS[asked]), captions[asked]
    return PairPlan(layouts, (seeds[0], seeds[1]), asked, prompt, answer)


def _scene_seed(seed: int, number: int) -> int:
    """Seeds of scenes: the same for a pair's own seed everywhere, and far apart for neighbouring pairs."""
    return seed * 1000 + number


def _which(rng: random.Random, layout: Layout, asked: int) -> tuple[str, str]:
    noun = NOUNS[rng.choice(layout.objects).noun]
    alone = f"{article(noun.counted(1))} {noun.counted(1)}"
    form = rng.choice(WHICH)
    return form.format(alone), f"{alone[0].upper()}{alone[1:]} is in the {NUMBERS[asked]} picture."


def pair(seed: int, style: str | Path = "openmoji") -> Pair:
    """The pair of a seed; the same on every CPU run."""
    planned = plan(seed)
    one, two = (scene(s, style, SIZE) for s in planned.seeds)
    return Pair(seed, (one, two), planned.asked, planned.prompt, planned.answer)


class Pairs(Samples):
    """The pairs of consecutive seeds as samples, drawn when they are asked for."""

    def __init__(self, number: int = 1000, start: int = 0, style: str | Path = "openmoji") -> None:
        self.number, self.start, self.style = number, start, style

    def __len__(self) -> int:
        return self.number

    def name(self, index: int) -> str:
        return f"pair-{self.start + index}"

    def fingerprint(self, count: int) -> str:
        return fingerprint_of_style(super().fingerprint(count), self.style)

    def sample(self, index: int) -> Sample:
        drawn = pair(self.start + index, self.style)
        return Sample(
            id=self.name(index),
            image=tuple(scene.image for scene in drawn.scenes),
            prompt=drawn.prompt,
            labels=tuple(scene.labels for scene in drawn.scenes),
            categories=CATEGORIES,
            references=(drawn.answer,),
        )


@register("pairs")
def open_pairs(where: str) -> Pairs:
    """`pairs`, `pairs:200` (how many), `pairs:200@5000` (from which seed), `pairs:200,style=FOLDER`."""
    return Pairs(*parse_range("pairs", where))
