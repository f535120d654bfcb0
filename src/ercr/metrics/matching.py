"""Which category of a dataset a noun names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from ercr.metrics.language import Language

# names by id, or pairs (id, name) in the dataset's order if an id has several names
Categories = Mapping[int, str] | Sequence[tuple[int, str]]

Match = Literal["any", "exact", "synonyms"]
_SYNONYMS = {
    "person": "man men woman boy girl people guy lady child kid baby player rider skier surfer".split(),
    "bicycle": ["bike"],
    "motorcycle": ["motorbike"],
    "airplane": ["plane", "jet"],
    "couch": ["sofa"],
    "tv": ["television", "screen", "monitor"],
    "cell phone": ["phone", "smartphone", "cellphone"],
    "dining table": ["table"],
    "laptop": ["computer"],
    "refrigerator": ["fridge"],
}
_Found = dict[str, tuple[int, ...]]  # from a word to categories, in the dataset's order


def pairs(categories: Categories) -> tuple[tuple[int, str], ...]:
    """Ids and names in the dataset's order; an id comes once per name."""
    return tuple(categories.items() if isinstance(categories, Mapping) else categories)


def match_category(
    word: str, categories: Categories, language: Language, match: Match = "any", background: bool = False
) -> int | None:
    """The category whose name contains the noun's lemma as a word.

    `any` is the public evaluation code's rule: the last such category wins, so "dog" goes to a "hot dog" that comes
    later. `exact` prefers a name that is the noun alone; `synonyms` also knows other words for some categories.
    Id 0, which marks the background of label pictures, is found only if `background` is set.
    """
    known = pairs(categories)
    parts, names, others = _index(known if background else tuple(pair for pair in known if pair[0] > 0), language)
    stem = language.stem(word)
    found = parts.get(stem, ())
    if match == "any":
        return found[-1] if found else None
    choices = [*names.get(stem, ()), *(others.get(stem, ()) if match == "synonyms" else ()), *found]
    return choices[0] if choices else None


@lru_cache(maxsize=64)
def _index(categories: tuple[tuple[int, str], ...], language: Language) -> tuple[_Found, _Found, _Found]:
    """Categories by the lemmas of their names' words, by the lemma of the whole name, and by synonyms."""
    parts: dict[str, list[int]] = {}
    names: dict[str, list[int]] = {}
    others: dict[str, list[int]] = {}
    for category, name in categories:
        for stem in dict.fromkeys(language.stem(part) for part in name.split()):
            parts.setdefault(stem, []).append(category)
        for stem in {language.stem(name), name.lower()}:
            names.setdefault(stem, []).append(category)
        for stem in _SYNONYMS.get(name, ()):
            others.setdefault(stem, []).append(category)
    return _frozen(parts), _frozen(names), _frozen(others)


def _frozen(index: dict[str, list[int]]) -> _Found:
    return {word: tuple(found) for word, found in index.items()}
