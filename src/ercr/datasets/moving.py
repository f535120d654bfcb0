"""Drawn clips: pictograms that stay, move, enter, leave and cross, with masks of every frame and a caption.

A clip is drawn from a seed like a scene: the same ground behind eight frames, half a second apart, and one to three
things on it. Nothing is read from a video file.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts

from .registry import register
from .sample import Sample, Samples
from .scenes.captions import alone_phrase
from .scenes.compose import bank_tensor, compose, pack, visible
from .scenes.dataset import fingerprint_of_style, parse_range
from .scenes.layout import Layout, Placed, covered, draw_ground, place_alone
from .scenes.nouns import CATEGORIES, NOUNS
from .scenes.pictograms import load_bank

FRAMES, FPS = 8, 2.0
SHAPES = ((160, 160), (144, 176), (176, 144), (128, 192), (192, 128))  # width, height
PROMPT = "What happens in this video?"
PROMPTS = (PROMPT, "Describe this video.", "Describe this video in one sentence.")
SIDES = ("left", "right", "top", "bottom")
_SHARES = ((0.10, 0.32), (0.08, 0.22), (0.07, 0.15))  # of the picture that a thing covers, by their number
_OUTSIDE = 0.62  # distance of a thing's middle behind the border, in sides, at which nothing of it is seen
_OVERLAP = 0.3  # of the smaller thing that another may hide in a frame
_TRIES = 30


@dataclass(frozen=True)
class Mover:
    """A thing and where its middle is in every frame; `motion` and `side` are what the caption says of it."""

    placed: Placed
    path: tuple[tuple[float, float], ...]
    motion: str  # stays, moves, enters, leaves, crosses
    side: str  # from where it enters, to where it moves or leaves; of a crossing thing, to where
    onset: int  # the frame at which something happens

    def at(self, frame: int) -> Placed:
        x, y = self.path[frame]
        return replace(self.placed, x=x, y=y)


@dataclass(frozen=True)
class Plan:
    """Everything about a clip but its pixels."""

    ground: Layout  # without things
    movers: tuple[Mover, ...]  # from back to front
    caption: str

    def layouts(self) -> list[Layout]:
        """The scene of every frame."""
        return [replace(self.ground, objects=tuple(m.at(f) for m in self.movers)) for f in range(FRAMES)]


@dataclass(frozen=True)
class Moving:
    """A drawn clip and everything that is true of it."""

    seed: int
    clip: LoadedClip
    masks: NDArray[np.bool_]  # [things, frames, H, W], what can be seen of each
    labels: NDArray[np.uint8]  # [frames, H, W], category of every pixel, 0 for the ground
    caption: str
    nouns: tuple[str, ...]


def plan(seed: int, shape: tuple[int, int] | None = None) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"moving {seed}")
    drawn = rng.choice(SHAPES)
    width, height = shape or drawn
    ground = draw_ground(rng, width, height)
    nouns = rng.sample(range(len(NOUNS)), rng.choices((1, 2, 3), (0.25, 0.45, 0.3))[0])
    movers: list[Mover] = []
    for noun in nouns:
        mover = _mover(rng, noun, width, height, movers, len(nouns))
        if mover is not None:
            movers.append(mover)
    return Plan(ground, tuple(movers), write_caption(rng, movers))


def moving(seed: int, style: str | Path = "openmoji") -> Moving:
    """The clip of a seed. The same seed and style give the same clip on every CPU run."""
    planned = plan(seed)
    bank = _bank(str(style))
    packed = pack(planned.layouts())
    pictures = compose(packed, bank, torch.Generator().manual_seed(seed), frames=FRAMES)
    return finish(seed, planned, pictures, visible(packed, bank))


def finish(seed: int, planned: Plan, pictures: Tensor, masks: Tensor) -> Moving:
    """A drawn plan as a clip; pictures [frames, 3, H, W] and masks [frames, slots, H, W]."""
    pixels = (pictures * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    seen = masks[:, : len(planned.movers)].transpose(0, 1).cpu().numpy()
    labels = np.zeros(pixels.shape[:3], np.uint8)
    for mover, mask in zip(planned.movers, seen, strict=True):
        labels[mask] = NOUNS[mover.placed.noun].category_id
    frames = tuple(Image.fromarray(frame) for frame in pixels)
    clip = LoadedClip(frames, tuple(range(FRAMES)), Facts(FRAMES, FPS, pixels.shape[1:3]))
    nouns = tuple(NOUNS[mover.placed.noun].name for mover in planned.movers)
    return Moving(seed, clip, seen, labels, planned.caption, nouns)


def write_caption(rng: random.Random, movers: Sequence[Mover]) -> str:
    """One English sentence that names every thing and what it does, in the order in which things happen."""
    order = sorted(movers, key=lambda mover: mover.onset)
    clauses = [f"{alone_phrase(rng, mover.placed)} {_verb(mover)}" for mover in order]
    sentence = clauses[0]
    for index, (before, mover, clause) in enumerate(zip(order, order[1:], clauses[1:], strict=False)):
        later = mover.onset > before.onset + 1
        last = index == len(clauses) - 2
        sentence += f", then {clause}" if later else f" and {clause}" if last else f", {clause}"
    return sentence[0].upper() + sentence[1:] + "."


def _verb(mover: Mover) -> str:
    side = mover.side
    if mover.motion == "stays":
        return "stays"
    if mover.motion == "crosses":
        return f"crosses from {SIDES[SIDES.index(side) ^ 1]} to {side}"
    return {"moves": "moves to", "enters": "enters from", "leaves": "leaves to"}[mover.motion] + f" the {side}"


def _mover(rng: random.Random, noun: int, width: int, height: int, others: Sequence[Mover], count: int) -> Mover | None:
    """A thing on a path where it hides little of the others; None where there is no such path."""
    low, high = _SHARES[count - 1]
    for attempt in range(_TRIES):
        share = math.exp(rng.uniform(math.log(low), math.log(high))) * 0.97**attempt
        placed = place_alone(rng, noun, share, width, height)
        motion = rng.choices(("stays", "moves", "enters", "leaves", "crosses"), (0.2, 0.2, 0.22, 0.22, 0.16))[0]
        side = rng.choice(SIDES)
        path, onset = _path(rng, placed, motion, side, width, height)
        mover = Mover(placed, path, motion, side, onset)
        if all(_hidden(mover, other) <= _OVERLAP for other in others):
            return mover
    return None


def _hidden(one: Mover, other: Mover) -> float:
    """The largest share of the smaller thing that lies on the other in any frame."""
    return max(covered(*one.path[f], one.placed.side, other.at(f)) for f in range(FRAMES))


def _path(
    rng: random.Random, placed: Placed, motion: str, side: str, width: int, height: int
) -> tuple[tuple[tuple[float, float], ...], int]:
    """The middle of a thing in every frame, and the frame at which something happens."""
    along, length = (0, width) if side in ("left", "right") else (1, height)
    here = (placed.x, placed.y)[along]
    out = [-_OUTSIDE * placed.side, length + _OUTSIDE * placed.side]
    there, behind = out if side in ("left", "top") else out[::-1]  # beyond the side that is named, and the other one
    first, last, start, stop, onset = here, here, 0, 1, 0
    if motion == "moves":
        first, last = _way(rng, 0.45 * placed.side, length, back=side in ("left", "top"))
        start = onset = rng.randint(0, 2)
        stop = rng.randint(start + 3, FRAMES - 1)
    elif motion == "crosses":
        first, last, start = behind, there, rng.randint(0, 2)
        stop, onset = rng.randint(start + 4, FRAMES - 1), start + 1
    elif motion in ("enters", "leaves"):
        start = rng.randint(1, 4)
        stop = start + rng.randint(2, 3)
        first, onset = there, start + 1
        if motion == "leaves":
            first, last, start, stop = here, there, FRAMES - 1 - stop, FRAMES - 1 - start
            onset = start
    values = (_between(first, last, frame, start, stop) for frame in range(FRAMES))
    return tuple((value, placed.y) if along == 0 else (placed.x, value) for value in values), onset


def _way(rng: random.Random, margin: float, length: float, back: bool) -> tuple[float, float]:
    """Start and end of a move inside the picture: at least a third of what there is room for."""
    room = length - 2 * margin
    way = rng.uniform(room / 3, room)
    first = margin + rng.uniform(0, room - way)
    return (first + way, first) if back else (first, first + way)


def _between(first: float, last: float, frame: int, start: int, stop: int) -> float:
    return first + (last - first) * min(max((frame - start) / (stop - start), 0.0), 1.0)


@lru_cache(maxsize=4)
def _bank(style: str) -> Tensor:
    return bank_tensor(load_bank(style))


class MovingClips(Samples):
    """The clips of consecutive seeds as samples, drawn when they are asked for."""

    def __init__(self, number: int = 1000, start: int = 0, style: str | Path = "openmoji") -> None:
        self.number, self.start, self.style = number, start, style

    def __len__(self) -> int:
        return self.number

    def name(self, index: int) -> str:
        return f"moving-{self.start + index}"

    def fingerprint(self, count: int) -> str:
        return fingerprint_of_style(super().fingerprint(count), self.style)

    def sample(self, index: int) -> Sample:
        drawn = moving(self.start + index, self.style)
        return Sample(
            id=self.name(index),
            image=(drawn.clip,),
            prompt=PROMPT,
            labels=(drawn.labels,),
            categories=CATEGORIES,
            references=(drawn.caption,),
        )


@register("moving")
def open_moving(where: str) -> MovingClips:
    """`moving`, `moving:200` (how many), `moving:200@5000` (from which seed), `moving:200,style=FOLDER`."""
    return MovingClips(*parse_range("moving", where))
