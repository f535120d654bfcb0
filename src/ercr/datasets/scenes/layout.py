"""Decides from a seed what a scene holds and where; it never touches a pixel."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from .nouns import NOUNS
from .pictograms import PICTOGRAMS

COLORS: dict[str, tuple[float, float, float]] = {
    "red": (0.80, 0.38, 0.36),
    "green": (0.46, 0.72, 0.44),
    "blue": (0.42, 0.56, 0.84),
    "yellow": (0.90, 0.84, 0.46),
    "pink": (0.93, 0.68, 0.78),
    "purple": (0.62, 0.48, 0.78),
    "gray": (0.62, 0.62, 0.62),
    "white": (0.95, 0.95, 0.94),
    "brown": (0.56, 0.42, 0.31),
    "black": (0.16, 0.16, 0.18),
}
TINTS = ("red", "green", "blue", "yellow", "pink", "purple")
SHAPES = ((224, 224), (208, 240), (240, 208), (192, 256), (256, 192), (176, 288), (288, 176))  # width, height

_PICTOGRAMS_OF = tuple(
    tuple(p for p, (noun, _) in enumerate(PICTOGRAMS) if noun == index) for index in range(len(NOUNS))
)
_LARGEST = (0.60, 0.40, 0.28, 0.21, 0.17)  # upper bound of an object's share of the picture, by their number
SMALLEST = 0.05


@dataclass(frozen=True)
class Placed:
    """One object: which pictogram, where (pixels), how large, and how its colours and shape are bent."""

    noun: int
    pictogram: int
    x: float
    y: float
    side: float  # longer side of the pictogram in pixels
    angle: float
    flip: bool
    squeeze: float
    tint: str
    gain: tuple[float, float, float]
    share: float  # part of the picture's area that its square covers


@dataclass(frozen=True)
class Layout:
    """Everything about a scene but its pixels; objects are listed from back to front."""

    width: int
    height: int
    objects: tuple[Placed, ...]
    background: str
    base: tuple[float, float, float]
    grain: tuple[float, float, float]  # strength of coarse, medium and fine noise
    weave: tuple[float, float, float, float]  # strength, cycles across, angle, how much it is crossed
    light: tuple[float, float, float]  # gradient along x, along y, darkening of the corners
    shadow: tuple[float, float, float]  # strength, offset along x and y as parts of the object's side


def draw_layout(rng: random.Random, width: int, height: int) -> Layout:
    """A random layout for a picture of this size; the same state of `rng` always gives the same layout."""
    nouns = _choose_nouns(rng)
    most = _LARGEST[len(nouns) - 1]
    shares = sorted((math.exp(rng.uniform(math.log(SMALLEST), math.log(most))) for _ in nouns), reverse=True)
    counts = {noun: nouns.count(noun) for noun in nouns}
    objects: list[Placed] = []
    for noun, share in zip(nouns, shares, strict=True):
        placed = _place(rng, noun, share, width, height, objects, tinted=counts[noun] == 1)
        if placed is not None:
            objects.append(placed)
    return replace(draw_ground(rng, width, height), objects=tuple(objects))


def draw_ground(rng: random.Random, width: int, height: int) -> Layout:
    """A random ground for a picture of this size, without objects."""
    name = rng.choice(tuple(COLORS))
    return Layout(
        width=width,
        height=height,
        objects=(),
        background=name,
        base=_jitter(rng, COLORS[name], 0.05),
        grain=(rng.uniform(0.01, 0.07), rng.uniform(0.0, 0.05), rng.uniform(0.0, 0.03)),
        weave=(
            rng.choice((0.0, rng.uniform(0.02, 0.07))),
            rng.uniform(2, 16),
            rng.uniform(0, math.pi),
            rng.random(),
        ),
        light=(rng.uniform(-0.15, 0.15), rng.uniform(-0.15, 0.15), rng.uniform(0, 0.2)),
        shadow=(rng.choice((0.0, rng.uniform(0.15, 0.5))), rng.uniform(-0.1, 0.1), rng.uniform(0.02, 0.12)),
    )


def _choose_nouns(rng: random.Random) -> list[int]:
    """Between one and five nouns; in three scenes of ten one of them is there two or three times."""
    number = rng.choices((1, 2, 3, 4, 5), (0.18, 0.25, 0.27, 0.18, 0.12))[0]
    nouns = rng.sample(range(len(NOUNS)), number)
    if number >= 2 and rng.random() < 0.3:
        for copy in range(1, rng.choice((2, 2, 3))):
            if copy < number:
                nouns[copy] = nouns[0]
    rng.shuffle(nouns)
    return nouns


def _place(
    rng: random.Random, noun: int, share: float, width: int, height: int, others: list[Placed], tinted: bool
) -> Placed | None:
    """The object at a spot where it hides little of the others, smaller if it must; None where it cannot be."""
    overlap = 0.25 if rng.random() < 0.3 else 0.08
    while True:
        side = min(math.sqrt(share * width * height), 0.94 * min(width, height))
        for _ in range(20):
            margin = 0.44 * side
            x, y = rng.uniform(margin, width - margin), rng.uniform(margin, height - margin)
            if all(covered(x, y, side, other) <= overlap for other in others):
                return _finish(rng, noun, x, y, side, tinted, side * side / (width * height))
        if share <= SMALLEST:
            return None if others else _finish(rng, noun, width / 2, height / 2, side, tinted, share)
        share = max(SMALLEST, share * 0.75)


def place_alone(rng: random.Random, noun: int, share: float, width: int, height: int) -> Placed:
    """An object somewhere in the picture, whatever else is there."""
    side = min(math.sqrt(share * width * height), 0.94 * min(width, height))
    margin = 0.44 * side
    x, y = rng.uniform(margin, width - margin), rng.uniform(margin, height - margin)
    return _finish(rng, noun, x, y, side, True, side * side / (width * height))


def covered(x: float, y: float, side: float, other: Placed) -> float:
    """How much of the smaller of two squares lies on the other."""
    reach = (side + other.side) / 2
    least = min(side, other.side)
    across = min(max(reach - abs(x - other.x), 0.0), least)
    down = min(max(reach - abs(y - other.y), 0.0), least)
    return across * down / (least * least)


def _finish(rng: random.Random, noun: int, x: float, y: float, side: float, tinted: bool, share: float) -> Placed:
    return Placed(
        noun=noun,
        pictogram=rng.choice(_PICTOGRAMS_OF[noun]),
        x=x,
        y=y,
        side=side,
        angle=rng.gauss(0, 0.17),
        flip=rng.random() < 0.5,
        squeeze=math.exp(rng.gauss(0, 0.07)),
        tint=rng.choice(TINTS) if rng.random() < (0.15 if tinted else 0) else "",
        gain=_jitter(rng, (1.0, 1.0, 1.0), 0.1),
        share=share,
    )


def _jitter(rng: random.Random, color: tuple[float, float, float], amount: float) -> tuple[float, float, float]:
    red, green, blue = (min(max(c + rng.uniform(-amount, amount), 0.0), 1.2) for c in color)
    return red, green, blue
