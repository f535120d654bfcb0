"""Composed pictograms with exact masks and English captions, made from a seed; nothing is read from a picture file."""

from ercr.datasets.sample import PROMPT

from .captions import Mention, counts, mentions
from .dataset import Scene, SceneObject, Scenes, scene
from .nouns import CATEGORIES, NOUNS, Noun

__all__ = [
    "CATEGORIES",
    "NOUNS",
    "PROMPT",
    "Mention",
    "Noun",
    "Scene",
    "SceneObject",
    "Scenes",
    "counts",
    "mentions",
    "scene",
]
