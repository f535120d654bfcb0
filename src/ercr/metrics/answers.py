"""One answer scored by a protocol: are maps of object words high on their object, and those of function words low?

Maps are converted to uint8 on the token grid, enlarged by OpenCV and thresholded by Otsu's method, as in the published
results. Nothing here runs a model or reads a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Geometry
from ercr.metrics.grouping import Group, answer_words
from ercr.metrics.language import Kind, Language
from ercr.metrics.matching import Categories, match_category, pairs
from ercr.metrics.pixels import Overlap, levels, otsu, overlap, place, stretch
from ercr.metrics.protocol import Protocol
from ercr.metrics.several import PixelRow
from ercr.words import Token, WordMaps

TAM = Protocol()
Enlarge = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]


@dataclass(frozen=True)
class TokenScore:
    """One token: the scores of its own map."""

    index: int  # among the answer's tokens
    word: int | None  # among the answer's words; None for white space that belongs to no word
    token: Token
    threshold: float | None = None  # Otsu's, of nouns
    overlap: Overlap | None = None  # of matched nouns whose category is in the picture
    quiet: float | None = None  # of function words: share of cells below the answer's limit


@dataclass(frozen=True)
class WordScore:
    """One word: what it is, and its tokens' scores combined by the protocol's `subword`."""

    index: int
    text: str
    tag: str
    kind: Kind
    category: int | None
    tokens: tuple[int, ...]  # indices of its tokens
    threshold: float | None = None
    overlap: Overlap | None = None
    quiet: float | None = None  # what a function word adds to the pooled mean
    pooled: Overlap | None = None  # what an object word adds to the pooled means, after merging


_NO_WORD = WordScore(-1, "", "", "other", None, ())


@dataclass(frozen=True)
class AnswerScore:
    """Every token and word of an answer, and what they add to the scores of a dataset."""

    tokens: tuple[TokenScore, ...]
    words: tuple[WordScore, ...]
    limit: float | None  # mean threshold of the answer's nouns (b)
    names: Mapping[int, str]  # of categories; several names of one id are joined
    left_out: str | None = None  # why the protocol takes no score from this answer

    def rows(self) -> list[dict[str, Any]]:
        """One row per token with the token and word columns of a run; a word's scores stand at its first token."""
        return [self._row(token) for token in self.tokens]

    def _row(self, score: TokenScore) -> dict[str, Any]:
        word, own = _NO_WORD if score.word is None else self.words[score.word], score.overlap
        first = word.tokens[:1] == (score.index,)
        pooled = word.pooled if first else None
        return {
            "token": score.index,
            "token_id": score.token.id,
            "token_text": score.token.text,
            "probability": score.token.probability,
            "word": score.word,
            "word_text": word.text,
            "tag": word.tag,
            "kind": word.kind,
            "category": word.category,
            "category_name": None if word.category is None else self.names[word.category],
            "threshold": score.threshold,
            "iou": own and own.iou,
            "precision": own and own.precision,
            "recall": own and own.recall,
            "quiet": score.quiet,
            "object_iou": pooled and pooled.iou,
            "object_precision": pooled and pooled.precision,
            "object_recall": pooled and pooled.recall,
            "function_quiet": word.quiet if first else None,
        }


def score_answer(
    explanation: WordMaps,
    labels: NDArray[Any] | Sequence[NDArray[Any]] | None,
    categories: Categories,
    language: Language,
    protocol: Protocol = TAM,
    retokenized: Sequence[str] | None = None,
) -> AnswerScore:
    """Every word of the answer against the label picture (pixel = category id; None where its file is missing).

    Of several pictures and clips, all pixels are scored together; `labels` has then one array for each.
    `retokenized` are the texts of the tokens of the decoded answer, end markers included, each decoded alone. Only
    `mismatch="skip"` uses them; without them the generated tokens are assumed to tokenise to themselves.
    """
    tokens = [t for t in explanation.text_tokens if t.kind == "answer"]
    if protocol.mismatch == "skip" and retokenized is not None and len(retokenized) != len(tokens):
        reason = f"the answer has {len(tokens)} tokens but {len(retokenized)} after decoding and tokenising again"
        return AnswerScore((), (), None, _names(categories), reason)
    groups = answer_words(tokens, protocol, retokenized)
    words = [_word(index, group, categories, language, protocol) for index, group in enumerate(groups)]
    maps = levels(explanation.maps[[t.row for t in tokens]])  # [T, h, w]
    picture, enlarge = _scored_on(explanation, labels, protocol)
    owners = {i: word.index for word in words for i in word.tokens}
    kept = [i for i, token in enumerate(tokens) if protocol.end_token == "glue" or not token.special]
    scores = {i: TokenScore(i, owners.get(i), tokens[i]) for i in kept}
    _score_nouns(scores, words, maps, picture, enlarge, protocol)
    words = [_gather_noun(word, scores, protocol) for word in words]
    limit = _limit(words)
    if limit is not None:
        words = _score_function_words(scores, words, maps, limit)
    words = _pool(words, protocol)
    return AnswerScore(tuple(scores.values()), tuple(words), limit, _names(categories))


def _names(categories: Categories) -> dict[int, str]:
    """One name per id; several are joined."""
    names: dict[int, str] = {}
    for id_, name in pairs(categories):
        names[id_] = f"{names[id_]} / {name}" if id_ in names else name
    return names


def _word(index: int, group: Group, categories: Categories, language: Language, protocol: Protocol) -> WordScore:
    kind, category = language.kind(group.text), None
    if kind == "noun":
        category = match_category(group.text, categories, language, protocol.match, protocol.background == "drop")
        if category == 0:  # in the public code neither a noun with a threshold nor a function word
            kind, category = "other", None
    return WordScore(index, group.text, language.tag(group.text), kind, category, group.tokens)


def _scored_on(
    explanation: WordMaps, labels: NDArray[Any] | Sequence[NDArray[Any]] | None, protocol: Protocol
) -> tuple[NDArray[Any], Enlarge]:
    """The label picture, and how a map is enlarged to its size."""
    one: Callable[[NDArray[np.uint8], Geometry, tuple[int, int]], NDArray[np.uint8]] = (
        (lambda map_, geometry, size: stretch(map_, size)) if protocol.place == "stretch" else place
    )
    if isinstance(explanation.geometry, Geometry):
        geometry = explanation.geometry
        picture = np.zeros(geometry.grid, np.uint8) if labels is None else np.asarray(labels)
        size = (picture.shape[0], picture.shape[1])
        return picture, lambda map_: one(map_, geometry, size)
    row = PixelRow.of(explanation, None if labels is None else list(labels))
    picture = np.zeros((1, row.size), np.uint8) if labels is None else row.labels(list(labels))
    return picture, lambda map_: row.enlarged(map_, one)


def _score_nouns(
    scores: dict[int, TokenScore],
    words: Sequence[WordScore],
    maps: NDArray[np.uint8],
    labels: NDArray[Any],
    enlarge: Enlarge,
    protocol: Protocol,
) -> None:
    """Threshold of every noun's token and, where its category is in the picture, the overlap with it."""
    masks = {c: labels == c for c in {word.category for word in words} if c is not None}
    present = {category: mask for category, mask in masks.items() if mask.any()}
    nothing = math.nan if protocol.empty == "nan" else 0.0
    for word in words:
        if word.kind != "noun":
            continue
        truth = present.get(word.category) if word.category is not None else None
        for i in word.tokens:
            pixels = enlarge(maps[i])
            threshold = otsu(pixels)
            fit = None if truth is None else overlap(pixels > threshold, truth, nothing)
            scores[i] = replace(scores[i], threshold=threshold, overlap=fit)


def _gather_noun(word: WordScore, scores: Mapping[int, TokenScore], protocol: Protocol) -> WordScore:
    """The word's threshold and overlap from those of its tokens, by the protocol's `subword`."""
    thresholds = [t for i in word.tokens if (t := scores[i].threshold) is not None]
    fits = [o for i in word.tokens if (o := scores[i].overlap) is not None]
    if not thresholds:
        return word
    if protocol.subword == "first":
        return replace(word, threshold=thresholds[0], overlap=fits[0] if fits else None)
    if protocol.subword == "mean":
        return replace(word, threshold=_mean(thresholds), overlap=_mean_overlap(fits) if fits else None)
    # the first of equal IoUs, with its own precision and recall
    best = max(fits, key=lambda fit: fit.iou, default=None)
    return replace(word, threshold=max(thresholds), overlap=best)


def _mean_overlap(fits: Sequence[Overlap]) -> Overlap:
    return Overlap(_mean([f.iou for f in fits]), _mean([f.precision for f in fits]), _mean([f.recall for f in fits]))


def _limit(words: Sequence[WordScore]) -> float | None:
    thresholds = [word.threshold for word in words if word.threshold is not None]
    return _mean(thresholds) if thresholds else None


def _score_function_words(
    scores: dict[int, TokenScore], words: Sequence[WordScore], maps: NDArray[np.uint8], limit: float
) -> list[WordScore]:
    """Share of cells below the limit, per token and as the mean over a function word's tokens."""
    shares = (maps < limit).mean((1, 2))  # [T]
    scored = []
    for word in words:
        if word.kind == "function":
            for i in word.tokens:
                scores[i] = replace(scores[i], quiet=float(shares[i]))
            word = replace(word, quiet=float(shares[list(word.tokens)].mean()))
        scored.append(word)
    return scored


def _pool(words: Sequence[WordScore], protocol: Protocol) -> list[WordScore]:
    """The words with what each adds to the pooled means: neighbours of one category count once, by the better IoU.

    The public code keeps a list of scores and, after a word of the category of the word before it, merges the last
    two entries. If the category is absent from the picture, neither word has an entry and two others are merged.
    """
    kept: list[int] = []  # words that have an entry in the list
    for word in words:
        if word.category is None:
            continue
        if word.overlap is not None:
            kept.append(word.index)
        follows = word.index > 0 and words[word.index - 1].category == word.category
        if follows and len(kept) > 1 and (protocol.merge == "list" or word.overlap is not None):
            kept = [*kept[:-2], _better(words, kept[-2], kept[-1])]
    return [replace(word, pooled=word.overlap) if word.index in kept else word for word in words]


def _better(words: Sequence[WordScore], one: int, other: int) -> int:
    first, second = words[one].overlap, words[other].overlap
    return other if first and second and second.iou > first.iou else one


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
