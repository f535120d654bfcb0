"""Scenes by seed, alone or as a dataset of samples; it never trains or runs a model."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ercr.errors import InputError

from ..registry import register
from ..sample import PROMPT, Sample, Samples
from .captions import write_caption
from .compose import bank_tensor, compose, pack, visible
from .layout import SHAPES, Layout, draw_layout
from .nouns import CATEGORIES, NOUNS
from .pictograms import Bank, load_bank

_USUAL = "openmoji"  # the style that comes with the package `scenes` asks for


@dataclass(frozen=True)
class SceneObject:
    """One object of a scene; its box is left, top, right, bottom of what can be seen of it."""

    name: str
    category_id: int
    box: tuple[int, int, int, int]


@dataclass(frozen=True)
class Scene:
    """A composed picture and everything that is true of it."""

    seed: int
    image: Image.Image
    masks: NDArray[np.bool_]  # [objects, H, W], what can be seen of each object
    labels: NDArray[np.uint8]  # [H, W], category id of every pixel, 0 for the background
    caption: str
    objects: tuple[SceneObject, ...]


def plan(seed: int, size: int = 224, shape: tuple[int, int] | None = None) -> tuple[Layout, str]:
    """The layout and caption of a seed; `size` is the side of a square with the picture's area."""
    rng = random.Random(seed)
    drawn = rng.choice(SHAPES)
    width, height = (round(edge * size / 224) for edge in shape or drawn)
    layout = draw_layout(rng, width, height)
    return layout, write_caption(rng, layout)


def scene(seed: int, style: str | Path = _USUAL, size: int = 224) -> Scene:
    """The scene of a seed. The same seed, style and size give the same scene on every CPU run."""
    layout, caption = plan(seed, size)
    generator = torch.Generator().manual_seed(seed)
    packed, bank = pack([layout]), _bank(str(style))
    picture = compose(packed, bank, generator)[0]
    return finish(seed, layout, caption, picture, visible(packed, bank)[0])


def finish(seed: int, layout: Layout, caption: str, picture: Tensor, masks: Tensor) -> Scene:
    """A drawn layout as a `Scene`."""
    pixels = (picture * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    seen = masks[: len(layout.objects)].cpu().numpy()
    labels = np.zeros(pixels.shape[:2], np.uint8)
    objects = []
    for placed, mask in zip(layout.objects, seen, strict=True):
        noun = NOUNS[placed.noun]
        labels[mask] = noun.category_id
        objects.append(SceneObject(noun.name, noun.category_id, _box(mask)))
    return Scene(seed, Image.fromarray(pixels), seen, labels, caption, tuple(objects))


def _box(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    rows, columns = np.nonzero(mask)
    if rows.size == 0:
        return (0, 0, 0, 0)
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


@lru_cache(maxsize=4)
def _bank(style: str) -> Tensor:
    bank: Bank = load_bank(style)
    return bank_tensor(bank)


class Scenes(Samples):
    """The scenes of consecutive seeds as samples, drawn when they are asked for."""

    def __init__(self, number: int = 1000, start: int = 0, style: str | Path = _USUAL, size: int = 224) -> None:
        self.number, self.start, self.style, self.size = number, start, style, size

    def __len__(self) -> int:
        return self.number

    def name(self, index: int) -> str:
        return f"scene-{self.start + index}"

    def fingerprint(self, count: int) -> str:
        return fingerprint_of_style(super().fingerprint(count), self.style)

    def sample(self, index: int) -> Sample:
        drawn = scene(self.start + index, self.style, self.size)
        return Sample(
            id=self.name(index),
            image=drawn.image,
            prompt=PROMPT,
            labels=drawn.labels,
            categories=CATEGORIES,
            references=(drawn.caption,),
        )


@register("scenes")
def open_scenes(where: str) -> Scenes:
    """`scenes`, `scenes:200` (how many), `scenes:200@5000` (from which seed), `scenes:200,style=FOLDER`."""
    return Scenes(*parse_range("scenes", where))


def fingerprint_of_style(names: str, style: str | Path) -> str:
    """Names alone do not tell the style, so the pictograms of a style of one's own are hashed, too."""
    return names if style == _USUAL else hashlib.sha256(names.encode() + load_bank(style).tobytes()).hexdigest()


def parse_range(dataset: str, where: str) -> tuple[int, int, str | Path]:
    """How many samples of a drawn dataset, from which seed, in which style: `200@5000,style=FOLDER`."""
    numbers, comma, option = where.partition(",")
    name, _, style = option.partition("=") if comma else ("style", "=", _USUAL)
    count, _, start = numbers.partition("@")
    try:
        number, first = int(count or 1000), int(start or 0)
    except ValueError:
        number = first = -1
    if number < 0 or first < 0 or name != "style" or not style:
        forms = f"{dataset}:COUNT, {dataset}:COUNT@SEED or {dataset}:COUNT,style=FOLDER"
        raise InputError(f"Write {forms}, not {dataset}:{where}.")
    folder = Path(style).expanduser()
    if style != _USUAL and not folder.is_dir():
        raise InputError(f"There is no folder {style!r}: a style is a folder of PNG files named by code point.")
    return number, first, style if style == _USUAL else folder
