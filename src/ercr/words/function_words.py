"""Words that name nothing in a picture, such as articles and prepositions, of a few languages; the text decides which.

Other languages have no list: then every word counts as one that could name something.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files

# English names of things and of what they do that are function words elsewhere: they do not tell the language
_ENGLISH_TOO = frozenset("man hat war bin den die door want car son ton pour par dove sin era come".split())
_MARKS = string.punctuation + "’‘“”„«»。、，"


@lru_cache(maxsize=1)
def _lists() -> dict[str, frozenset[str]]:
    text = (files("ercr.words") / "function_words.txt").read_text(encoding="utf-8")
    sections = (section.partition("]") for section in text.split("\n[")[1:])
    return {name: frozenset(words.split()) for name, _, words in sections}


def contents(texts: Sequence[str]) -> list[bool]:
    """Of each word of a text, whether it could name something that is seen: no function word, no punctuation."""
    bare = [text.lower().strip(_MARKS) for text in texts]
    listed = _lists()[language(bare)]
    return [any(letter.isalpha() for letter in word) and word not in listed for word in bare]


def language(words: Iterable[str]) -> str:
    """The language whose function words the text has most of, counted once each; English if there are none."""
    said = frozenset(words) - _ENGLISH_TOO
    return max(_lists(), key=lambda name: (len(_lists()[name] & said), name == "english"))
