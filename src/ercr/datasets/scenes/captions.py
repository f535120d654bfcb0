"""Writes the caption of a layout and reads nouns back from a caption; it never looks at pixels."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass

from .layout import COLORS, Layout, Placed
from .nouns import NOUNS, Noun

NUMBERS = ("a", "two", "three", "four", "five")
_LARGE, _SMALL = 0.26, 0.085  # shares of the picture from which an object is called large, up to which small


@dataclass(frozen=True)
class Mention:
    """A noun in a caption: its name, how many the caption says there are, and where the noun stands."""

    name: str
    count: int
    start: int
    end: int


def write_caption(rng: random.Random, layout: Layout) -> str:
    """One English sentence that names every object of the layout once, with its number."""
    groups: dict[int, list[Placed]] = {}
    for placed in layout.objects:
        groups.setdefault(placed.noun, []).append(placed)
    order = list(groups.values())
    rng.shuffle(order)
    phrases = [_phrase(rng, group) for group in order]
    sentence = _opening(rng, len(order[0])) + phrases[0]
    if len(order) == 1:
        sentence += _position(rng, order[0], layout)
    else:
        sentence += f" {_relation(rng, order[0], order[1])} {phrases[1]}" + _rest(rng, phrases[2:])
    if rng.random() < 0.4:
        sentence += f" on {article(layout.background)} {layout.background} background"
    return sentence[0].upper() + sentence[1:] + "."


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def alone_phrase(rng: random.Random, placed: Placed) -> str:
    """One object with its article: `a small red car`, `a pair of skis`."""
    return _phrase(rng, [placed])


def _phrase(rng: random.Random, group: list[Placed]) -> str:
    """`a small red car`, `two dogs`, `a pair of skis`."""
    noun, first = NOUNS[group[0].noun], group[0]
    if len(group) > 1:
        return f"{NUMBERS[len(group) - 1]} {noun.counted(len(group))}"
    words = [first.tint] if first.tint else []
    if rng.random() < 0.35:
        words = (["large"] if first.share > _LARGE else ["small"] if first.share < _SMALL else []) + words
    words.append(noun.counted(1))
    return f"{article(words[0])} {' '.join(words)}"


def _opening(rng: random.Random, count: int) -> str:
    if rng.random() < 0.6:
        return ""
    return rng.choice(("a photo of ", "the image shows ", "there is " if count == 1 else "there are "))


def _position(rng: random.Random, group: list[Placed], layout: Layout) -> str:
    """Where a lone object is, said for half of those that are not in the middle."""
    if len(group) > 1 or rng.random() < 0.5:
        return ""
    x, y = group[0].x / layout.width, group[0].y / layout.height
    column = "left" if x < 0.38 else "right" if x > 0.62 else ""
    row = "top" if y < 0.38 else "bottom" if y > 0.62 else ""
    if row and column:
        return f" in the {row} {column} corner"
    if row:
        return f" at the {row}"
    return f" on the {column}" if column else " in the middle"


def _relation(rng: random.Random, one: list[Placed], other: list[Placed]) -> str:
    if len(one) > 1 or len(other) > 1 or rng.random() < 0.4:
        return rng.choice(("and", "with", "next to"))
    dx, dy = other[0].x - one[0].x, other[0].y - one[0].y
    if abs(dx) > abs(dy):
        return "to the left of" if dx > 0 else "to the right of"
    return "above" if dy > 0 else "below"


def _rest(rng: random.Random, phrases: list[str]) -> str:
    if not phrases:
        return ""
    if len(phrases) == 1:
        return rng.choice((" and ", ", with ")) + phrases[0]
    return ", " + ", ".join(phrases[:-1]) + " and " + phrases[-1]


def _pattern() -> re.Pattern[str]:
    """Matches a number, adjectives, a measure and the longest noun that fits."""
    names = sorted({form for noun in NOUNS for form in (noun.name, noun.plural)}, key=len, reverse=True)
    adjectives = "|".join(("large", "small", *COLORS))
    return re.compile(
        rf"(?:\b(a|an|one|two|three|four|five)\s+)?(?:(?:{adjectives})\s+)*"
        rf"(?:(?:pairs?|heads?)\s+of\s+)?\b({'|'.join(map(re.escape, names))})\b",
        re.IGNORECASE,
    )


_MENTION = _pattern()
_FORMS: dict[str, Noun] = {form: noun for noun in NOUNS for form in (noun.plural, noun.name)}
_VALUES = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


def mentions(caption: str) -> tuple[Mention, ...]:
    """Every noun of the vocabulary that the caption names, in order."""
    found = []
    for match in _MENTION.finditer(caption):
        number = (match.group(1) or "one").lower()
        noun = _FORMS[match.group(2).lower()]
        found.append(Mention(noun.name, _VALUES[number], match.start(2), match.end(2)))
    return tuple(found)


def counts(caption: str) -> Counter[str]:
    """How many of each noun the caption says there are."""
    total: Counter[str] = Counter()
    for mention in mentions(caption):
        total[mention.name] += mention.count
    return total
