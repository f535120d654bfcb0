"""What captions say: their words, which of them name something, and which captions are plain."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

# words that name nothing one could point at
_EMPTY = frozenset(
    "a an the and or of in on at to with is are by for from his her its their while as it that this into "
    "through over up down out near front two three four one some other another each him them who be being has "
    "have off against along around behind between during there something someone several many very together "
    "onto about next top what where they she he looks looking stands standing walks walking sits sitting runs "
    "running through background".split()
)
# what people wear: captions dwell on it, and a model that learns to does so whether it sees it or not
_CLOTHING = (
    "shirts? t-shirts? tshirts? jackets? jeans suits? coats? hats? dress(?:es)? caps? shorts pants sweaters? clothes "
    "clothing outfits? swimsuits? helmets? uniforms? vests? tops? bikinis? trunks costumes? shoes boots glasses "
    "sunglasses gear goggles scarf skirts? hoodie sweatshirt wetsuit tie backpack attire jerseys? robes?"
).split()
_WORN = re.compile(rf"wearing|wears|dressed|{'|'.join(_CLOTHING)}")
_PIECE = rf"(?:(?:an?|the|his|her|their|matching) )?(?:[\w-]+ (?:and )?){{0,3}}?(?:{'|'.join(_CLOTHING)})"
_DRESSED = re.compile(
    rf",? (?:(?:is |are )?(?:dressed )?(?:in|wearing|wears)) {_PIECE}(?:(?:,| and|, and| with) {_PIECE}){{0,4}}"
    r"(?! (?:on|with) (?:top|the))(?=[ ,.])"
)
_LENGTH, _CLOTHES = 0.03, 0.1  # what a word more, and a word about clothes, take from a caption's plainness
PEOPLE = frozenset(
    "man men woman women boy boys girl girls child children kid kids person people guy lady baby toddler player "
    "players skier skateboarder surfer snowboarder rider biker cyclist runner swimmer climber crowd group couple "
    "team".split()
)
_DOGS = frozenset("dog dogs puppy puppies".split())


@cache
def learnt_words() -> list[tuple[list[str], set[str]]]:
    """For each class beside ImageNet's, people first: its names, and all words by which a caption gives it away."""
    lines = (Path(__file__).parent / "learnt_words.txt").read_text(encoding="utf-8").splitlines()
    halves = [line.split("|") for line in lines]
    return [(names.split(), {*names.split(), *others.split()}) for names, others in halves]


def peopled(words: Collection[str]) -> bool:
    """Whether a caption's words give away that people are there."""
    return not learnt_words()[0][1].isdisjoint(words)


def tidy(caption: str) -> str:
    """A caption as a sentence: "a dog runs , fast ." becomes "A dog runs, fast."."""
    text = re.sub(r"\s+([,;])", r"\1", " ".join(caption.split())).rstrip(" .")
    return text[:1].upper() + text[1:] + "."


def words_of(captions: Sequence[str]) -> list[str]:
    return [word for caption in captions for word in re.findall("[a-z]+", caption.lower())]


def unseen() -> set[str]:
    """Words of captions that say how something is, or what it does: seen, maybe, but nothing to point at."""
    return {*_EMPTY, *(Path(__file__).parent / "unseen_words.txt").read_text(encoding="utf-8").split()}


def vocabulary(
    captions: Sequence[Sequence[str]], classes: Sequence[Sequence[str]], tokenizer: Any, least: int
) -> dict[str, int]:
    """Words that should be readable in the picture, with the token each begins with; sorted, so that runs agree."""
    count = Counter(word for group in captions for word in set(words_of(group)))
    chosen = {word for word, n in count.items() if n >= least and len(word) > 2} - unseen()
    chosen |= {word for own in classes for word in own}
    return {word: tokenizer(" " + word, add_special_tokens=False).input_ids[0] for word in sorted(chosen)}


def silent(tokenizer: Any, readable: Collection[int]) -> list[int]:
    """Tokens that should be readable nowhere: those of words that name nothing, and of punctuation."""
    texts = [form for word in sorted(unseen()) for form in (f" {word}", word.capitalize())] + [".", ","]
    return sorted({tokenizer(text, add_special_tokens=False).input_ids[0] for text in texts} - {*readable})


def plainest_first(captions: Sequence[str]) -> list[str]:
    """The captions of one picture: first those that are short, say what the others say, and leave clothes alone."""
    told = Counter(word for caption in captions for word in set(words_of([caption])))

    def plainness(caption: str) -> float:
        words = words_of([caption])
        named = [word for word in words if word not in _EMPTY]
        agreed = sum(told[word] - 1 for word in named) / max(1, len(named) * (len(captions) - 1))
        return agreed - _LENGTH * len(words) - _CLOTHES * sum(bool(_WORN.fullmatch(word)) for word in words)

    return sorted(captions, key=plainness, reverse=True)


def undressed(caption: str) -> str:
    """A caption without what people wear: "A man in a blue shirt runs." becomes "A man runs."."""
    return _DRESSED.sub("", caption)


def told_by(captions: Sequence[str]) -> set[str]:
    """Words that captions give away: theirs, in singular and plural, and that whoever they name is a person."""
    words = set(words_of(captions))
    people = {"person", "people"} if peopled(words) else set()
    return people | {form for word in words for form in (word, f"{word}s", word.removesuffix("s"))}


def shows(captions: Sequence[str]) -> Literal["people", "dogs", "neither"]:
    """What is in a picture: people, as in most of Flickr8k, or dogs without people, or neither."""
    words = set(words_of(captions))
    return "people" if peopled(words) else "dogs" if words & _DOGS else "neither"
