"""Tokens, words, their maps and their provenance: plain data, and how to find a word in it."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ercr.errors import InputError, WordNotFound, nearest
from ercr.image.clips import LoadedClip
from ercr.image.gallery import Gallery, Shown
from ercr.image.geometry import Floats, Geometry
from ercr.image.images import LoadedImage
from ercr.image.pieces import AnyGeometry, Piece, Pieces, pieces_of, split
from ercr.words.contrast import Alternatives, Contrast, contrast
from ercr.words.function_words import contents
from ercr.words.grounding import Grounding, Signals, joined
from ercr.words.pieces import group
from ercr.words.places import Place, place_shares, places
from ercr.words.spots import Spot, spot

Subwords = Literal["max", "mean", "first"]
_LEAST = 1e-30  # stands for a probability of 0, whose logarithm is no number


@dataclass(frozen=True)
class Candidate:
    """A word the model could have said instead."""

    text: str
    id: int
    probability: float


@dataclass(frozen=True)
class Token:
    """One text token: of the prompt or of the answer."""

    text: str
    id: int
    row: int  # its row in `WordMaps.maps`
    position: int  # in the model's sequence
    kind: Literal["prompt", "answer"]
    special: bool
    probability: float
    candidates: tuple[Candidate, ...]

    @property
    def log_probability(self) -> float:
        return math.log(max(self.probability, _LEAST))


@dataclass(frozen=True)
class Word:
    """One or more tokens read as a word (or phrase), with the map of the image evidence behind it."""

    text: str
    tokens: tuple[Token, ...]
    map: Floats = field(repr=False)  # [h, w], 0..1; of several pictures one row of cells, which `maps` divides
    index: int = -1  # among the words of its kind
    strength: float = 0.0  # highest value of the map before it was stretched, in the method's unit
    share: float = 0.0  # the strength as a share of what the strongest word of the answer reaches
    grounding: Grounding | None = None  # whether it was seen or guessed, if that was measured
    geometry: AnyGeometry | None = field(default=None, repr=False)
    parts: Floats | None = field(default=None, repr=False)  # [tokens, h, w] on the scale that all words share

    @property
    def maps(self) -> tuple[Floats, ...]:
        """The map of each picture [h, w] and clip [slices, h, w], on one scale."""
        return (self.map,) if self.geometry is None else tuple(split(self.geometry, self.map))

    @cached_property
    def lit(self) -> Floats:
        """The map [h, w] on the scale that all words of the answer share: its peak is `share`."""
        return self.map if self.parts is None else np.asarray(self.parts.max(0), np.float32)

    @cached_property
    def shares(self) -> list[list[float]]:
        """The share of the evidence in each slice of each picture and clip, in their order; a picture is one slice."""
        return place_shares(self._whole, self.map[None] if self.parts is None else self.parts)

    def where(self) -> list[Place]:
        """The same as pictures and seconds, the largest share first."""
        return places(self._whole, self.shares)

    @property
    def picture(self) -> int:
        """The picture or clip with most of the evidence."""
        return int(np.argmax([sum(slices) for slices in self.shares]))

    def strongest_slice(self, picture: int) -> int:
        """The slice of a clip with most of the word's evidence; 0 for a picture."""
        piece = self._pieces[picture]
        return int(self.maps[picture].reshape(piece.slices, -1).sum(1).argmax())

    @property
    def spot(self) -> Spot | None:
        """Where the evidence is strongest, in words and as a box in pixels; None if there is no evidence."""
        if self.evidence <= 0:
            return None
        peaks = [float(map_.max(initial=0.0)) for map_ in self.maps]
        at = int(np.argmax(peaks))
        piece, map_ = self._pieces[at], self.maps[at]
        if not piece.clip:
            return spot(map_, piece.geometry, at)
        best = int(map_.reshape(piece.slices, -1).max(1).argmax())
        return spot(map_[best], piece.geometry, at, piece.times[best][0])

    @property
    def _whole(self) -> AnyGeometry:
        if self.geometry is None:
            raise InputError("This word knows no pictures: take it from an explanation.")
        return self.geometry

    @property
    def _pieces(self) -> tuple[Piece, ...]:
        return pieces_of(self._whole)

    @property
    def probability(self) -> float:
        """Probability of the whole word given the text before it."""
        return float(np.prod([token.probability for token in self.tokens]))

    @property
    def evidence(self) -> float:
        """Highest value of the map. Each map has a scale of its own; `share` compares words."""
        return float(self.map.max(initial=0.0))

    @property
    def tint(self) -> float:
        """How strongly a word is coloured, 0..1: as it was seen, or else by its share."""
        return min(max(self.share, 0.0), 1.0) if self.grounding is None else self.grounding.seen


Which = str | int | tuple[int, int] | Word | None  # how callers refer to a word, a phrase or the whole answer (None)


@dataclass(frozen=True)
class ContextWord:
    """An earlier token whose map was subtracted, and how much of it."""

    token: Token
    alpha: float  # share of the context map
    relevance: float | None  # rank relevance r, for PCR


@dataclass(eq=False)
class WordMaps:
    """Maps of the image evidence for every word of a prompt and its answer."""

    image: Shown  # one picture, or the gallery of several pictures and clips
    geometry: AnyGeometry
    text_tokens: tuple[Token, ...]  # prompt rows, then answer rows
    maps: Floats  # [S, h, w], 0..1, one row per text token: the prompt's first (Token.row is the index)
    provenance: dict[str, Any]
    stages: dict[str, Floats] = field(default_factory=dict)  # earlier stages of the method, [S, h, w]
    alpha: Floats | None = None  # [S, S]
    beta: Floats | None = None  # [S]
    relevance: Floats | None = None  # [S, S]
    strength: Floats | None = None  # [S] highest value of each map before it was stretched, in the method's unit
    scale: Floats | None = None  # [S] what 1 in the stages' maps was before they were stretched, in the method's unit
    signals: Signals | None = None  # what was measured of the answer's tokens to tell seen words from guessed ones
    alternatives: Alternatives | None = None  # maps of tokens that could have been said

    # texts

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The answer's tokens, without end markers."""
        return tuple(t for t in self.text_tokens if t.kind == "answer" and not t.special)

    @property
    def prompt_tokens(self) -> tuple[Token, ...]:
        return tuple(t for t in self.text_tokens if t.kind == "prompt" and not t.special)

    @property
    def text(self) -> str:
        """What the model said."""
        return "".join(t.text for t in self.tokens).strip()

    @property
    def prompt(self) -> str:
        """The words of the user and of earlier turns; a new turn starts a new line."""
        tokens = self.prompt_tokens
        turns = _turns(tokens)
        return "".join(("\n" if i in turns else "") + t.text for i, t in enumerate(tokens)).strip()

    @cached_property
    def words(self) -> tuple[Word, ...]:
        """The answer's words; a word's map is the maximum over its tokens."""
        return self.grouped("max")

    @cached_property
    def prompt_words(self) -> tuple[Word, ...]:
        return self.grouped("max", "prompt")

    def grouped(self, subwords: Subwords, kind: Literal["prompt", "answer"] = "answer") -> tuple[Word, ...]:
        """Words with their tokens' maps merged by `max`, `mean` or `first`."""
        tokens = self.tokens if kind == "answer" else self.prompt_tokens
        groups = group([t.text for t in tokens], _turns(tokens))
        words = [self._merge([tokens[i] for i in indices], subwords) for indices in groups]
        visible = [word for word in words if word.text]
        named = contents([word.text for word in visible])
        return tuple(
            replace(word, index=index, grounding=self._ground(word, content))
            for index, (word, content) in enumerate(zip(visible, named, strict=True))
        )

    def _merge(self, tokens: Sequence[Token], subwords: Subwords) -> Word:
        rows = [t.row for t in tokens]
        text = "".join(t.text for t in tokens).strip()
        strength = float(self.strengths[rows].max(initial=0.0))
        share = strength / self.strongest
        map_ = np.asarray(merge_maps(self.maps[rows], subwords), np.float32)
        return Word(text, tuple(tokens), map_, -1, strength, share, geometry=self.geometry, parts=self.evened[rows])

    def _ground(self, word: Word, content: bool) -> Grounding | None:
        if self.signals is None or word.tokens[0].kind == "prompt":
            return None
        logs = [token.log_probability for token in word.tokens]
        return self.signals.word([token.row for token in word.tokens], logs, content)

    @cached_property
    def strengths(self) -> Floats:
        """Strengths of all rows; files of earlier versions have none, and then the maps' peaks stand for them."""
        return self.maps.max((1, 2), initial=0.0) if self.strength is None else self.strength

    @cached_property
    def strongest(self) -> float:
        """The highest strength of the answer's tokens; 1 if there is none."""
        return float(self.strengths[[token.row for token in self.tokens]].max(initial=0.0)) or 1.0

    @cached_property
    def evened(self) -> Floats:
        """All maps [S, h, w] on one scale: the peak of each is its strength as a share of the answer's strongest."""
        peaks = self.maps.max((1, 2), initial=0.0)
        factors = np.where(peaks > 0, self.strengths / np.where(peaks > 0, peaks, 1.0), 0.0) / self.strongest
        return np.asarray(self.maps * factors[:, None, None], np.float32)

    # finding words

    def word(self, which: str | int, occurrence: int = 0, subwords: Subwords = "max") -> Word:
        """A word by its text (any case; several words make a phrase) or by its index."""
        words = self.grouped(subwords)
        if isinstance(which, int):
            if not -len(words) <= which < len(words):
                raise WordNotFound(f"The answer has {len(words)} words, so there is no word {which}.")
            return words[which]
        wanted = [w.lower() for w in which.split()]
        said = [w.text.lower() for w in words]
        # 'dog' also finds '"dog'
        bare = [text.lower() or whole for text, whole in zip(bare_texts(words), said, strict=True)]
        starts = range(len(said) - len(wanted) + 1) if wanted else ()
        found = [i for i in starts if wanted in (said[i : i + len(wanted)], bare[i : i + len(wanted)])]
        if not found:
            listed = ", ".join(dict.fromkeys(t for t in bare_texts(words) if t)) or "nothing"
            raise WordNotFound(f"The model did not say {which!r}; it said: {listed}.{nearest(which.lower(), said)}")
        if not -len(found) <= occurrence < len(found):
            raise WordNotFound(f"The model said {which!r} {len(found)} times, so there is no occurrence {occurrence}.")
        start = found[occurrence]
        return words[start] if len(wanted) == 1 else self.phrase(start, start + len(wanted), subwords)

    def phrase(self, start: int, stop: int, subwords: Subwords = "max") -> Word:
        """The words start..stop-1 as one; the map is merged over all their tokens."""
        words = self.words
        if not 0 <= start < stop <= len(words):
            raise InputError(f"A phrase needs 0 <= start < stop <= {len(words)}, not {start} and {stop}.")
        tokens = [token for word in words[start:stop] for token in word.tokens]
        found = [word.grounding for word in words[start:stop] if word.grounding is not None]
        return replace(self._merge(tokens, subwords), grounding=joined(found))

    def sentence(self, subwords: Subwords = "max") -> Word:
        """The whole answer as one word."""
        if not self.words:
            raise InputError("The model said nothing, so there is no sentence to show.")
        return self.phrase(0, len(self.words), subwords)

    def context(self, which: str | int, occurrence: int = 0) -> tuple[float, list[ContextWord]]:
        """What was subtracted from a word's first token: the fit beta and the earlier tokens by falling alpha."""
        row = self.word(which, occurrence).tokens[0].row
        if self.alpha is None or self.beta is None:
            raise InputError(f"Method {self.provenance.get('method')!r} subtracts no context; use 'ercr' or 'tam'.")
        related = None if self.relevance is None else self.relevance[row]
        entries = [
            ContextWord(self.text_tokens[j], float(self.alpha[row, j]), None if related is None else float(related[j]))
            for j in np.argsort(-self.alpha[row], kind="stable")
            if self.alpha[row, j] > 0
        ]
        return float(self.beta[row]), entries

    # what could have been said

    def instead(self, which: str | int, other: str, occurrence: int = 0) -> Word:
        """Another word at the place of a word of the answer, with its map by the same method there."""
        said = self.word(which, occurrence)
        token = said.tokens[0]
        if self.alternatives is None:
            raise InputError(
                "This explanation has no maps of words that were not said: explain with candidates=True, by a method "
                "such as 'ercr', 'tam' or 'cam'."
            )
        column = self.alternatives.find(token.row, other)
        if column is None:
            known = ", ".join(
                repr(text.strip()) for text in self.alternatives.texts[token.row - self.alternatives.first]
            )
            raise WordNotFound(
                f"There is no map of {other!r} at the place of {said.text!r}, only of {known}: explain with "
                f"candidates=[{other!r}]."
            )
        row = token.row - self.alternatives.first
        strength = float(self.alternatives.strength[row, column])
        share = strength / self.strongest
        map_ = self.alternatives.maps[row, column]
        faint = share / peak if (peak := float(map_.max(initial=0.0))) > 0 else 0.0
        parts = np.asarray(map_ * faint, np.float32)[None]
        return Word(other.strip(), (token,), map_, -1, strength, share, geometry=self.geometry, parts=parts)

    def contrast(self, which: str | int, other: str, occurrence: int = 0) -> Contrast:
        """Why this word and not another one: the difference of their evidence at the word's place."""
        token = self.word(which, occurrence).tokens[0]
        its = self.instead(which, other, occurrence)
        own = float(self.strengths[token.row])
        text = self.word(which, occurrence).text
        return contrast(text, self.maps[token.row], own, its.text, its.map, its.strength)

    # maps on the image

    @property
    def media(self) -> tuple[LoadedImage | LoadedClip, ...]:
        """The pictures and clips, in the order of their places."""
        return self.image.items

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Where the cells of each picture and clip lie, in the same order."""
        return pieces_of(self.geometry)

    def heatmap(
        self,
        which: Which = None,
        subwords: Subwords = "max",
        *,
        picture: int | None = None,
        time: float | None = None,
    ) -> Floats:
        """A map [H, W] at the original image's size: of a word, an index, a Word, or the whole sentence.

        `picture` is one of several pictures or clips, and `time` a moment of a clip in seconds. Without a time, a clip
        has a map for each of its slices [slices, H, W].
        """
        at = self.picture_index(picture)
        piece, map_ = self.pieces[at], self.find(which, subwords).maps[at]
        if time is None:
            return piece.geometry.to_pixels(map_)
        if not piece.clip:
            raise InputError("time= is a moment of a clip, and this is a picture: omit it.")
        return piece.geometry.to_pixels(map_[piece.slice_at(time)])

    def picture_index(self, picture: int | None) -> int:
        """One of the pictures and clips, counted from 0 or from the end; the only one if none is named."""
        count = len(self.pieces)
        if picture is None and count > 1:
            raise InputError(f"There are {count} pictures and clips: say which one with picture=0 to {count - 1}.")
        if picture is None:
            return 0
        if not isinstance(picture, int) or not -count <= picture < count:
            raise InputError(f"There are {count} pictures and clips, counted from 0, so there is no picture {picture}.")
        return picture % count

    def lit_heatmap(self, which: Which = None) -> Floats:
        """The same on the scale that all words of the answer share, so that a weak word stays weak; as it is shown."""
        return self.alone()[1].to_pixels(self.find(which).lit)

    def find(self, which: Which, subwords: Subwords = "max") -> Word:
        """A word by text, index or (start, stop) of a phrase; None is the whole sentence; a Word is itself."""
        if which is None:
            return self.sentence(subwords)
        if isinstance(which, Word):
            return which
        if isinstance(which, tuple):
            return self.phrase(which[0], which[1], subwords)
        return self.word(which, subwords=subwords)

    def of_picture(self, picture: int | None = None, time: float | None = None) -> Self:
        """The same words with the maps of one picture alone, or of what a clip shows at a moment (in seconds).

        The maps stay on the scale that they share with the other pictures.
        """
        at = self.picture_index(picture)
        piece, item = self.pieces[at], self.media[at]
        if isinstance(item, LoadedClip):
            if time is None:
                raise InputError("This is a clip: name a moment of it in seconds, as in time=2.5.")
            slice_ = piece.slice_at(time)
            shown = LoadedImage(item.frames[piece.frame_at(time)])
        elif time is not None:
            raise InputError("time= is a moment of a clip, and this is a picture: omit it.")
        else:
            shown, slice_ = item, 0

        def own(maps: Floats) -> Floats:
            return split(self.geometry, maps)[at].reshape(*maps.shape[:-2], piece.slices, *piece.geometry.grid)[
                ..., slice_, :, :
            ]

        instead, maps = self.alternatives, own(self.maps)
        whole, part = (found.max((1, 2), initial=0.0) for found in (self.maps, maps))
        picture_alone = replace(
            self,
            image=shown,
            geometry=piece.geometry,
            maps=maps,
            stages={name: own(maps) for name, maps in self.stages.items()},
            strength=np.asarray(self.strengths * part / np.where(whole > 0, whole, 1.0), np.float32),
            alternatives=None if instead is None else replace(instead, maps=own(instead.maps)),
            provenance={**self.provenance, "image": {"sha256": shown.sha256(), "size": list(shown.size)}},
        )
        vars(picture_alone)["strongest"] = self.strongest  # so that all pictures are shown on one scale
        return picture_alone

    def alone(self) -> tuple[LoadedImage, Geometry]:
        """The picture and its geometry, where there is one picture and nothing else."""
        if isinstance(self.image, Gallery) or isinstance(self.geometry, Pieces):
            raise InputError(
                "This shows one picture, and the explanation has several, or a clip: take one with "
                "explanation.of_picture(0), or of_picture(0, time=2.5)."
            )
        return self.image, self.geometry

    @property
    def seen(self) -> float:
        """Share of the image the model was shown; below 1 where its preprocessing crops; of several, the mean."""
        return self.geometry.seen


def bare_texts(words: Sequence[Word]) -> list[str]:
    """The words' texts without punctuation around them; punctuation alone becomes empty."""
    return [word.text.strip(string.punctuation) for word in words]


def _turns(tokens: Sequence[Token]) -> frozenset[int]:
    """Indices of tokens that do not follow the one before them in the sequence: a new turn began in between."""
    return frozenset(i for i in range(1, len(tokens)) if tokens[i].position != tokens[i - 1].position + 1)


def merge_maps(stack: NDArray[Any], subwords: Subwords) -> NDArray[Any]:
    """Maps [T, h, w] of a word's tokens as one [h, w]."""
    if subwords == "max":
        return np.asarray(stack.max(0))
    if subwords == "mean":
        return np.asarray(stack.mean(0))
    if subwords == "first":
        return np.asarray(stack[0])
    raise InputError(f"subwords must be max, mean or first, not {subwords!r}.")
