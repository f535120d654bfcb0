"""Invented samples: plain sentences about ImageNet's classes, with cells in which those classes are found.

Flickr8k shows people and dogs outdoors. These samples teach the language model to read the other class words out of
its visual tokens, so that it can name a zebra or a sink that no training caption has. No picture belongs to them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .words import learnt_words, words_of

_KINDS = {
    "animal": "cat dog horse sheep cow elephant bear zebra bird duck goose chicken rooster swan penguin monkey gorilla "
    "lion tiger leopard cheetah fox wolf rabbit squirrel pig camel llama turtle lizard snake frog shark whale panda "
    "owl butterfly spider",
    "food": "pizza sandwich burger donut banana orange apple lemon strawberry pineapple broccoli cauliflower cucumber "
    "mushroom pie pretzel bread soup pasta meat potatoes vegetables fruit chocolate dessert corn squash hot",
    "road": "car truck bus van taxi motorcycle bicycle bike scooter tractor jeep ambulance train cart",
    "water": "boat ship canoe sailboat",
    "air": "plane parachute balloon",
    "room": "couch chair bed table desk lamp television computer laptop keyboard mouse printer phone clock books "
    "window door curtain rug pillow blanket mirror cabinet fireplace piano vase plant remote teddy crib",
    "kitchen": "refrigerator stove oven microwave toaster sink dishwasher pot pan cabinet",
    "bath": "toilet sink bathtub shower mirror towel curtain",
    "cup": "cup mug bottle bowl wine coffee knife spoon teapot vase glass food",
    "street": "traffic sign meter bench building church tower bridge clock statue fountain fence umbrella trash flag",
    "thing": "umbrella backpack bag purse hat tie sunglasses camera guitar violin teddy balloon book toy phone laptop "
    "clock vase bottle keyboard remote",
    "sport": "skis tennis baseball basketball soccer volleyball golf hockey snowmobile",
}
_TEMPLATES = {
    "animal": ("A close up of a {0}.", "A {0} standing still.", "Two {0}s next to each other.", "A {0} looking ahead.",
               "Some {0}s.", "A {0} is standing next to a {1}.", "A {0} lying down.", "A {0}.", "A {0} and a {1}.",
               "A {0} in a field.", "A {0} on the grass."),
    "food": ("A plate with {0}.", "Some {0} and {1}.", "A close up of {0}.", "{0} and {1} on a plate.", "Some {0}."),
    "road": ("A {0} on a street.", "A {0} next to a {1}.", "A {0} driving down the road.", "A parked {0}.", "A {0}."),
    "water": ("A {0} in the water.", "A {0} on the water.", "A {0} and a {1} in the water."),
    "air": ("A {0} in the sky.", "A {0} flying.", "A {0} up in the sky."),
    "room": ("A room with a {0} and a {1}.", "A {0} next to a {1}.", "A {0} in a room.", "A {0} and a {1}."),
    "kitchen": ("A kitchen with a {0} and a {1}.", "A {0} in a kitchen.", "A kitchen with a {0}."),
    "bath": ("A bathroom with a {0} and a {1}.", "A {0} in a bathroom.", "A white {0} next to a {1}."),
    "cup": ("A {0} on a table.", "A {0} and a {1}.", "A {0} next to a {1}.", "A close up of a {0}."),
    "street": ("A {0} on a street.", "A {0} outside.", "A {0} next to a {1}.", "A {0}."),
    "thing": ("A {0}.", "A close up of a {0}.", "A {0} and a {1}.", "A {0} next to a {1}."),
    "sport": ("Someone playing {0}.", "A {0} player.", "A {0} game."),
}  # fmt: skip
_FULL = {"traffic": "traffic light", "meter": "parking meter", "teddy": "teddy bear", "hot": "hot dog",
         "cream": "ice cream", "remote": "remote control", "banana": "bananas", "orange": "oranges", "apple": "apples",
         "lemon": "lemons", "strawberry": "strawberries", "donut": "donuts", "mushroom": "mushrooms",
         "pretzel": "pretzels", "cucumber": "cucumbers"}  # fmt: skip
_PLURALS = {"sheeps": "sheep", "gooses": "geese", "foxs": "foxes", "wolfs": "wolves", "butterflys": "butterflies"}
_MIXED = 0.06  # share of samples in which several foods are seen at once: nobody can tell which
_MEALS = ("A plate with food.", "Some food on a plate.", "A close up of food.", "A table with food.",
          "A plate of food on a table.")  # fmt: skip
_PLAYED = {
    "skis": "A person on skis.",
    "snowmobile": "A person on a snowmobile.",
}


@dataclass(frozen=True)
class Invented:
    caption: str
    classes: tuple[int, ...]


def invent(class_words: Sequence[str], chance: random.Random) -> Invented:
    """A sentence and the classes that its cells show."""
    if chance.random() < _MIXED:
        seen = chance.sample(_KINDS["food"].split(), 3)
        return Invented(chance.choice(_MEALS), tuple(_place(class_words, name, chance) for name in seen))
    kind = chance.choice(list(_KINDS))
    first, second = chance.sample(_KINDS[kind].split(), 2)
    template = chance.choice(_TEMPLATES[kind]) if first not in _PLAYED else _PLAYED[first]
    named = [first, second] if "{1}" in template else [first]
    text = template.format(*(_FULL.get(word, word) for word in named))
    for wrong, right in _PLURALS.items():
        text = text.replace(wrong, right)
    shown = [_place(class_words, name, chance) for name in named]
    told, learnt = set(words_of([text])), learnt_words()
    # a street that is told of is seen, too
    shown += [len(class_words) - len(learnt) + i for i, (_, words) in enumerate(learnt) if told & words]
    return Invented(_article(text[:1].upper() + text[1:]), tuple(shown))


def _place(class_words: Sequence[str], name: str, chance: random.Random) -> int:
    return chance.choice([i for i, word in enumerate(class_words) if word == name])


def _article(text: str) -> str:
    words = text.split(" ")
    for i, word in enumerate(words[:-1]):
        if word in ("A", "a") and words[i + 1][:1] in "aeiou":
            words[i] += "n"
    return " ".join(words)


def evidence(classes: Tensor, grid: int, number: int, learnt: int) -> Tensor:
    """Logits of a classifier that sees each row's classes in a spot of the grid [B, grid * grid, number].

    `classes` [B, n] holds up to n classes; -1 stands for none. The last `learnt` of the classifier's are sure of what
    they do not see.
    """
    (rows, most), device = classes.shape, classes.device
    logits = torch.randn(rows, grid * grid, number, device=device) * 2 + 1
    logits[..., number - learnt :] -= 4
    axis = (torch.arange(grid, device=device) + 0.5) / grid
    centre = torch.rand(rows, most, 2, device=device) * 0.7 + 0.15
    radius = torch.rand(rows, most, 2, device=device) * 0.35 + 0.12
    away = ((axis - centre[..., None]) / radius[..., None]) ** 2  # [B, classes, y or x, grid]
    spot = torch.exp(-(away[:, :, 0, :, None] + away[:, :, 1, None, :]) / 1.5).flatten(2)  # [B, classes, cells]
    height = torch.rand(rows, most, 1, device=device) * 14 + 12
    raised = (spot * height).transpose(1, 2) * (classes >= 0)[:, None]
    at = classes.clamp(min=0)[:, None].expand(-1, grid * grid, -1)
    return logits.scatter_add(2, at, raised)
