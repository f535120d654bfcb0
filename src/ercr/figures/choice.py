"""Chooses the words and the labels of a figure; nothing here draws."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ercr.errors import InputError
from ercr.figures.sheet import Piece
from ercr.image.geometry import Floats
from ercr.methods.specs import NAMES
from ercr.render.labels import labels
from ercr.words import Which, Word, WordMaps
from ercr.words.function_words import contents
from ercr.words.maps import merge_maps
from ercr.words.places import place_shares


@dataclass(frozen=True)
class Chosen:
    """A word or phrase of the answer that all explanations share: its text and its rows."""

    text: str
    rows: tuple[int, ...]

    def map(self, explanation: WordMaps) -> Floats:
        """Its map by one explanation: the maximum over its tokens."""
        return np.asarray(merge_maps(explanation.maps[list(self.rows)], "max"), np.float32)

    def shares(self, explanation: WordMaps) -> list[list[float]]:
        """Its shares in each slice of each picture and clip, as `Word.shares` has them."""
        return place_shares(explanation.geometry, explanation.evened[list(self.rows)])


def checked(explanations: Sequence[WordMaps]) -> list[WordMaps]:
    """The explanations as a list; raises unless they share one image and one answer."""
    found: list[WordMaps] = [explanations] if isinstance(explanations, WordMaps) else list(explanations)
    if not found or not all(isinstance(item, WordMaps) for item in found):
        raise InputError("Give a list of explanations, such as explainer.explain_all(...) returns.")
    facts = {(e.image.sha256(), tuple(t.id for t in e.text_tokens)) for e in found}
    if len(facts) > 1:
        raise InputError("A figure shows one image and one answer: explain both by all methods with explain_all.")
    if not found[0].words:
        raise InputError("The model said nothing, so there is nothing to show.")
    return found


def choose(explanations: Sequence[WordMaps], words: Sequence[Which] | None, functions: int = 0) -> list[Chosen]:
    """Words given by text, index, (start, stop) or `Word`; by default the strongest ones, in answer order."""
    first = explanations[0]
    if isinstance(words, str):
        words = [words]
    found = notable(explanations, functions=functions) if words is None else [first.find(which) for which in words]
    if not found:
        raise InputError("Name at least one word to show.")
    return [
        Chosen(word.text.strip(string.punctuation) or word.text, tuple(t.row for t in word.tokens)) for word in found
    ]


def notable(explanations: Sequence[WordMaps], count: int = 4, functions: int = 0) -> list[Word]:
    """The strongest words and, with `functions`, the last function words."""
    # methods that subtract a context leave function words little, so they tell best what the picture says
    reference = next((e for e in explanations if e.alpha is not None), explanations[0])
    named = contents([word.text for word in reference.words])
    content = [word for word in _unique(reference.words) if named[word.index]]
    words = [word for word in reference.words if word.text.strip(string.punctuation)]
    best = sorted(content or _unique(words), key=lambda word: -word.strength)[: count - functions]
    little = [word for word in _unique(words[::-1]) if not named[word.index]][:functions]
    return sorted([*best, *little], key=lambda word: word.index)


def _unique(words: Sequence[Word]) -> list[Word]:
    return list({word.text.lower(): word for word in words[::-1]}.values())[::-1]


def titles(explanations: Sequence[WordMaps], given: Sequence[str] | None = None) -> list[str]:
    """Labels of the explanations: the given ones, or the paper's names of the methods with the settings that differ."""
    if given is not None:
        if len(given) != len(explanations):
            raise InputError(f"{len(explanations)} explanations need as many labels, not {len(given)}.")
        return [str(name) for name in given]
    names = []
    for explanation, label in zip(explanations, labels(explanations), strict=True):
        method = str(explanation.provenance.get("method"))
        names.append(label.replace(method, NAMES.get(method, (method,))[0], 1))
    return names


def sentence(explanation: WordMaps, chosen: Sequence[Chosen]) -> list[Piece]:
    """The answer as running text, the chosen words bold."""
    marked = {row for word in chosen for row in word.rows}
    pieces: list[Piece] = []
    last = 0
    for word in explanation.words:
        rows = [token.row for token in word.tokens]
        glued = bool(pieces) and not _apart(explanation, last, rows[0])
        pieces.append(Piece(word.text, bool(marked & set(rows)), glued))
        last = rows[-1]
    return pieces


def _apart(explanation: WordMaps, last: int, first: int) -> bool:
    """Whether there is white space between two words: at the end or start of a token, or as a token of its own."""
    texts = [token.text for token in explanation.text_tokens[last : first + 1]]
    return texts[0] != texts[0].rstrip() or texts[-1] != texts[-1].lstrip() or any(t.isspace() for t in texts[1:-1])
