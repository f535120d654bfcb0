"""Splits an answer into words by a protocol: which tokens belong together, and the text of each word."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from ercr.metrics.protocol import Protocol
from ercr.words import Token
from ercr.words.pieces import group

_BROKEN = "\ufffd"  # the text of a token that ends inside a character


@dataclass(frozen=True)
class Group:
    """A word's text and the indices of its tokens."""

    text: str
    tokens: tuple[int, ...]


def answer_words(tokens: Sequence[Token], protocol: Protocol, retokenized: Sequence[str] | None) -> list[Group]:
    """The words of the answer's tokens, end markers last.

    With `mismatch="skip"` the texts are those of the re-tokenised answer, which then has as many tokens.
    """
    texts = [t.text for t in tokens]
    if protocol.mismatch == "skip" and retokenized is not None:
        texts = list(retokenized)
    kept = [i for i, t in enumerate(tokens) if protocol.end_token == "glue" or not t.special]
    if protocol.split == "token":
        return _by_token(texts, kept)
    words: list[list[int]] = []
    for word in group([texts[i] for i in kept]):
        indices = [kept[at] for at in word]
        if words and tokens[indices[0]].special:
            words[-1] += indices  # a marker such as <end> begins with punctuation, but belongs to the last word
        else:
            words.append(indices)
    read = [Group("".join(texts[i] for i in word).strip(), tuple(word)) for word in words]
    return [word for word in read if word.text]


def _by_token(texts: Sequence[str], kept: Sequence[int]) -> list[Group]:
    """As the public code does: by the text of each token decoded alone; spaces are removed from the words."""
    words: list[list[int]] = []
    for i in kept:
        text = texts[i] or _BROKEN
        if not words or _starts_word(text):
            words.append([])
        words[-1].append(i)
    return [Group("".join(_bare(texts[i]) for i in word), tuple(word)) for word in words]


def _bare(text: str) -> str:
    return text.replace(" ", "").replace("▁", "")


def _starts_word(text: str) -> bool:
    # a run of punctuation in the order of ASCII counts as one mark, as in the public code
    marks = text in string.punctuation or text[0] in " ▁"
    return marks or any("CJK" in unicodedata.name(character, "") for character in text)
