"""Whether a thing that a word names is in a picture, by masks and by what people wrote about it; reads no picture.

A word counts as true if its category has a mask or if a reference caption names the thing: by the same word, another
word for it, or a kind of it ("animal" where there is a dog). `kinds.txt` lists such words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ercr.metrics.language import Language
from ercr.metrics.matching import Categories, pairs

By = Literal["mask", "reference", "neither"]
SMALLEST = 0.01  # share of the picture from which a masked thing is named as present
# nouns that name a place in the picture, an amount, or the picture itself
NAMELESS = frozenset(
    "front back background foreground top bottom side middle center centre corner edge end line way left right part "
    "piece pair bunch lot number row group set kind type view close closeup up photo picture image photograph scene "
    "red orange yellow green blue purple pink brown black white grey gray color colour "
    "shot camera one two three something someone anything other air day time distance action position".split()
)
_PARTS = re.compile(r"[\s-]+")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


@dataclass(frozen=True)
class Kinds:
    """Other words for things, and kinds of things."""

    same: Mapping[str, frozenset[str]]  # all words for what a word stands for
    of: Mapping[str, frozenset[str]]  # what makes a wider word true

    def satisfying(self, word: str) -> frozenset[str]:
        """The words for things that make this one true, itself among them."""
        found = {word} | self.same.get(word, frozenset())
        for wide in tuple(found):
            for kind in self.of.get(wide, ()):
                found |= {kind} | self.same.get(kind, frozenset())
        return frozenset(found)


@lru_cache(maxsize=1)
def kinds() -> Kinds:
    same: dict[str, set[str]] = {}
    of: dict[str, set[str]] = {}
    text = (files("ercr.metrics") / "kinds.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        head, sign, rest = (part.strip() for part in (line.partition("=") if "=" in line else line.partition(">")))
        if line.startswith("#") or not sign:
            continue
        (same if sign == "=" else of).setdefault(head, {head} if sign == "=" else set()).update(rest.split())
    everyone = {word: frozenset(words) for words in same.values() for word in words}
    return Kinds(everyone, {wide: frozenset(narrow) for wide, narrow in of.items()})


@dataclass(frozen=True)
class Scene:
    """What is known to be in a picture."""

    areas: Mapping[str, float]  # share of the picture by the names of masked categories
    named: Mapping[str, int]  # how many reference captions have each noun, by its stem
    vocabulary: frozenset[str]  # names of all categories that were looked for
    every: frozenset[str]  # stems of all words of the references

    def judge(self, noun: str, language: Language) -> tuple[bool, By]:
        """Whether the noun's thing is there, and what says so; `neither` where no category has the noun's name.

        That no kind of a thing is there ("teddy bear") does not say that the thing ("toy") is not.
        """
        word = stem(noun, language)
        wanted = kinds().satisfying(word)
        if wanted & {stem(name, language) for name in self.areas}:
            return True, "mask"
        if wanted & (self.every | self.named.keys()):
            return True, "reference"
        names = {word} | kinds().same.get(word, frozenset())
        known = names & {stem(name, language) for name in self.vocabulary}
        return False, "mask" if known else "neither"

    def present(self, least_captions: int = 2) -> list[str]:
        """Names of things that are there for sure: masks of some size, or, without masks, what several people named."""
        if self.vocabulary:
            return sorted(name for name, area in self.areas.items() if area >= SMALLEST)
        least = min(least_captions, max(self.named.values(), default=0))
        return sorted(noun for noun, count in self.named.items() if count >= least > 0 and noun not in NAMELESS)


def scene(labels: NDArray[Any] | None, categories: Categories, references: Sequence[str], language: Language) -> Scene:
    """What masks and references of a sample say."""
    areas: dict[str, float] = {}
    known = pairs(categories)
    if labels is not None and known:
        values, counts = np.unique(labels, return_counts=True)
        shares = dict(zip(values.tolist(), (counts / labels.size).tolist(), strict=True))
        areas = {name: shares[id_] for id_, name in known if id_ > 0 and shares.get(id_, 0) > 0}
    said = [{*_WORD.findall(text.lower())} for text in references]
    stems = [{stem(word, language) for word in words if language.kind(word) == "noun"} for words in said]
    named: dict[str, int] = {}
    for nouns in stems:
        for noun in nouns:
            named[noun] = named.get(noun, 0) + 1
    every = frozenset(stem(word, language) for words in said for word in words)
    vocabulary = frozenset(name for id_, name in known if id_ > 0) if labels is not None else frozenset()
    return Scene(areas, named, vocabulary, every)


def stem(noun: str, language: Language) -> str:
    """A name in lower case and singular, with hyphens for its blanks."""
    *first, last = _PARTS.split(noun.lower().strip())
    return "-".join([*first, language.lemma(last) if last else last])


@dataclass(frozen=True)
class Named:
    """A name to ask about: whether it is there, and how it was drawn."""

    text: str
    there: bool
    drawn: str  # present, random, popular, together


class Names:
    """Names of things that are in a picture and of things that are not, drawn as in POPE from what a dataset holds.

    Absent ones are drawn at random, among the most frequent things, and among those that come most often together with
    what is there. The same seed and sample always give the same names.
    """

    def __init__(self, scenes: Iterable[Scene], language: Language) -> None:
        self._language = language
        self._count: dict[str, int] = {}
        self._together: dict[str, dict[str, int]] = {}
        for known in scenes:
            there = known.present()
            for name in there:
                self._count[name] = self._count.get(name, 0) + 1
                with_it = self._together.setdefault(name, {})
                for other in there:
                    with_it[other] = with_it.get(other, 0) + 1
        # a noun that one picture's captions have may be anything
        least = 1 if len(self._count) < 200 else 3
        self._known = sorted((n for n, c in self._count.items() if c >= least), key=lambda n: (-self._count[n], n))

    def draw(self, known: Scene, most: int, rng: np.random.Generator) -> list[Named]:
        """Up to `most` present names, and as many absent ones of each kind."""
        there = known.present()
        chosen = [there[i] for i in rng.permutation(len(there))[:most]]
        names = [Named(name, True, "present") for name in chosen]
        absent = [
            name
            for name in (*self._known, *sorted(known.vocabulary - set(self._known)))
            if self._is_absent(name, known)
        ]
        joint = dict.fromkeys(absent, 0)
        for name in there:
            for other, count in self._together.get(name, {}).items():
                if other in joint:
                    joint[other] += count
        ranked = sorted(absent, key=lambda name: -joint[name])
        taken: set[str] = set()
        for drawn, pool in (("together", ranked[: 3 * most]), ("popular", absent[: 5 * most]), ("random", absent)):
            free = [name for name in pool if name not in taken]
            some = [free[i] for i in rng.permutation(len(free))[: len(chosen)]]
            taken |= set(some)
            names += [Named(name, False, drawn) for name in some]
        return names

    def _is_absent(self, name: str, known: Scene) -> bool:
        """Whether neither a mask nor a reference names it, a part of its name or a kind of it."""
        if known.judge(name, self._language)[0] or name in NAMELESS:
            return False
        return not any(part in known.every for part in _PARTS.split(name))
