"""The reward of captions: CIDEr-D against those of people, minus a penalty for objects that no caption mentions.

Vedantam et al., CIDEr (2015). The end of a sentence counts as a word, or a caption that breaks off would be rewarded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .words import PEOPLE, told_by, words_of

_LONGEST = 4  # words of an n-gram
_SIGMA = 6.0  # of lengths, in words
UNTOLD = 0.2  # off for every thing that no caption of the picture has
Gram = tuple[str, ...]


@dataclass(frozen=True)
class Vector:
    weights: list[dict[Gram, float]]  # for n-grams of 1, 2, ... words
    norms: list[float]
    length: int


class Cider:
    """Scores captions of the pictures whose captions it was made with; rare n-grams of these count most."""

    def __init__(self, references: Sequence[Sequence[str]]) -> None:
        self.often = Counter(gram for group in references for gram in {g for text in group for g in _grams(text)})
        self.most = math.log(len(references))
        self.references = references
        self.vectors: dict[int, list[Vector]] = {}  # of the references, made when they are first needed

    def vector(self, text: str) -> Vector:
        weights: list[dict[Gram, float]] = [{} for _ in range(_LONGEST)]
        for gram, times in _grams(text).items():
            weights[len(gram) - 1][gram] = times * (self.most - math.log(max(1, self.often[gram])))
        norms = [math.sqrt(sum(value * value for value in part.values())) for part in weights]
        return Vector(weights, norms, max(0, len(_split(text)) - 1))

    def __call__(self, picture: int, text: str) -> float:
        if picture not in self.vectors:
            self.vectors[picture] = [self.vector(other) for other in self.references[picture]]
        own, theirs = self.vector(text), self.vectors[picture]
        return 10 * sum(_alike(own, other) for other in theirs) / len(theirs)


def _split(text: str) -> list[str]:
    return [*words_of([text]), *(["."] if text.endswith(".") else [])]


def _grams(text: str) -> Counter[Gram]:
    words = _split(text)
    return Counter(tuple(words[i : i + n]) for n in range(1, _LONGEST + 1) for i in range(len(words) - n + 1))


def _alike(own: Vector, other: Vector) -> float:
    """Mean cosine over the lengths of n-grams; what is said more often than by people does not count twice."""
    total = 0.0
    for mine, theirs, one, two in zip(own.weights, other.weights, own.norms, other.norms, strict=True):
        if one and two:
            shared = sum(min(value, theirs[gram]) * theirs[gram] for gram, value in mine.items() if gram in theirs)
            total += shared / (one * two)
    return total / _LONGEST * math.exp(-((own.length - other.length) ** 2) / (2 * _SIGMA**2))


class Reward:
    """CIDEr-D less what is made up; `things` are the words that count as such."""

    def __init__(self, captions: Sequence[Sequence[str]], things: Collection[str], untold: float = UNTOLD) -> None:
        self.cider, self.things, self.untold = Cider(captions), frozenset(things), untold
        self.told = [told_by(group) for group in captions]

    def __call__(self, picture: int, text: str) -> float:
        told = self.told[picture]
        known = told | PEOPLE if "person" in told else told
        untold = sum(word in self.things and word not in known for word in words_of([text]))
        return self.cider(picture, text) - self.untold * untold
