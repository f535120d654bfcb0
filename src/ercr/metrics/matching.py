"""Which category of a dataset a noun names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ercr.metrics.language import Language

Match = Literal["any", "exact", "synonyms"]
_SYNONYMS = {
    "person": "man woman boy girl people guy lady child kid baby player rider skier surfer".split(),
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


def match_category(word: str, categories: Mapping[int, str], language: Language, match: Match = "any") -> int | None:
    """The category whose name contains the noun's lemma as a word.

    `any` is the public evaluation code's rule: the last such category wins, so "dog" goes to a "hot dog" that comes
    later. `exact` prefers a name that is the noun alone; `synonyms` also knows other words for some categories.
    """
    stem = language.stem(word)
    found = [id_ for id_, name in categories.items() if stem in [language.stem(part) for part in name.split()]]
    if match == "any":
        return found[-1] if found else None
    whole = [id_ for id_ in found if language.stem(categories[id_]) == stem or categories[id_] == word.lower()]
    if whole:
        return whole[0]
    if match == "synonyms":
        others = [id_ for id_, name in categories.items() if stem in _SYNONYMS.get(name, ())]
        if others:
            return others[0]
    return found[0] if found else None
