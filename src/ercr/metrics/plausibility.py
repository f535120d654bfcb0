"""Obj-IoU, Func-IoU and F1-IoU: do object words light up their object, and function words nothing?

The scores follow the evaluation protocol of TAM (Li et al., ICCV 2025). Maps are read as uint8 on the token grid,
enlarged by OpenCV and cut by its Otsu threshold, because published numbers were made so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ercr.explanation import Explanation
from ercr.geometry import Geometry
from ercr.metrics.language import Kind, Language
from ercr.metrics.matching import Match, match_category

Subword = Literal["max", "mean", "first"]


@dataclass(frozen=True)
class WordScore:
    """One word of an answer: what it is, and how its map fits."""

    text: str
    kind: Kind
    category: int | None = None
    threshold: float | None = None  # of nouns
    iou: float | None = None  # of matched nouns whose category is in the picture
    quiet: float | None = None  # of function words: share of cells below the nouns' mean threshold


def levels(maps: NDArray[Any]) -> NDArray[np.uint8]:
    """Maps in 0..1 as uint8, truncated."""
    return (np.clip(maps, 0, 1) * 255).astype(np.uint8)


def enlarge(map_: NDArray[np.uint8], geometry: Geometry, size: tuple[int, int]) -> NDArray[np.uint8]:
    """A uint8 map at the labels' size; where the model saw the whole image this is OpenCV's bilinear resize."""
    import cv2

    if geometry.box == (0.0, 0.0, float(geometry.size[1]), float(geometry.size[0])):
        return np.asarray(cv2.resize(map_, (size[1], size[0]), interpolation=cv2.INTER_LINEAR), np.uint8)
    return np.asarray(geometry.to_pixels(map_, size).round(), np.uint8)


def otsu(pixels: NDArray[np.uint8]) -> float:
    """OpenCV's Otsu threshold of a uint8 picture."""
    import cv2

    return float(cv2.threshold(pixels, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[0])


def intersection_over_union(prediction: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    union = np.logical_or(prediction, truth).sum()
    return float(np.logical_and(prediction, truth).sum() / union) if union else 0.0


def score_words(
    explanation: Explanation,
    labels: NDArray[np.uint8],
    categories: Mapping[int, str],
    language: Language,
    subword: Subword = "max",
    match: Match = "any",
) -> list[WordScore]:
    """Every word of the answer, scored against the label picture (pixel = category id)."""
    scored: list[WordScore] = []
    for word in explanation.words:
        kind = language.kind(word.text)
        if kind != "noun":
            scored.append(WordScore(word.text, kind))
            continue
        category = match_category(word.text, categories, language, match)
        truth = None if category is None else labels == category
        maps = levels(explanation.maps[[token.row for token in word.tokens]])
        scored.append(_score_noun(word.text, maps, explanation.geometry, labels.shape, category, truth, subword))
    return _score_function_words(explanation, scored)


def _score_noun(
    text: str, maps: Any, geometry: Geometry, size: Any, category: int | None, truth: Any, subword: Subword
) -> WordScore:
    pixels = [enlarge(map_, geometry, (size[0], size[1])) for map_ in maps]
    thresholds = [otsu(picture) for picture in pixels]
    iou = None
    if truth is not None and truth.any():
        pairs = zip(pixels, thresholds, strict=True)
        iou = _over_subwords([intersection_over_union(picture > t, truth) for picture, t in pairs], subword)
    return WordScore(text, "noun", category, _over_subwords(thresholds, subword), iou)


def _over_subwords(values: Sequence[float], subword: Subword) -> float:
    if subword == "first":
        return values[0]
    return float(max(values) if subword == "max" else np.mean(values))


def _score_function_words(explanation: Explanation, scored: list[WordScore]) -> list[WordScore]:
    thresholds = [score.threshold for score in scored if score.threshold is not None]
    if not thresholds:
        return scored
    limit = float(np.mean(thresholds))
    result = []
    for word, score in zip(explanation.words, scored, strict=True):
        if score.kind == "function":
            maps = levels(explanation.maps[[token.row for token in word.tokens]])
            score = WordScore(score.text, "function", quiet=float(np.mean([(m < limit).mean() for m in maps])))
        result.append(score)
    return result


def merge_neighbours(scores: Sequence[WordScore]) -> list[float]:
    """IoUs of object words; neighbouring words of one category count once, with the better IoU."""
    merged: list[float] = []
    before: int | None = None
    for score in scores:
        if score.category is not None and score.iou is not None:
            if score.category == before and merged:
                merged[-1] = max(merged[-1], score.iou)
            else:
                merged.append(score.iou)
        before = score.category if score.iou is not None else None
    return merged


def f1(objects: Any, functions: Any) -> Any:
    """Harmonic mean, 0 where both are 0."""
    total = objects + functions
    return np.where(total > 0, 2 * objects * functions / np.where(total > 0, total, 1), 0.0)


@dataclass
class Plausibility:
    """Pooled scores over a dataset. Holds one row of sums per image, so that parts can be merged in any order."""

    rows: dict[str, tuple[float, int, float, int]] = field(default_factory=dict)

    def add(self, image: str, scores: Sequence[WordScore]) -> None:
        objects = merge_neighbours(scores)
        quiet = [score.quiet for score in scores if score.quiet is not None]
        self.rows[image] = (float(sum(objects)), len(objects), float(sum(quiet)), len(quiet))

    def merge(self, other: Plausibility) -> Plausibility:
        return Plausibility({**self.rows, **other.rows})

    def _table(self) -> NDArray[np.float64]:
        return np.array([self.rows[key] for key in sorted(self.rows)], float).reshape(-1, 4)

    def summary(self, resamples: int = 2000, seed: int = 0) -> dict[str, tuple[float, float, float]]:
        """Obj-IoU, Func-IoU and F1-IoU in percent, each with a bootstrap 95 % interval over images."""
        table = self._table()
        draws = np.random.default_rng(seed).multinomial(len(table), np.full(len(table), 1 / len(table)), resamples)
        values = _pooled(np.vstack([table.sum(0), draws @ table]))
        return {
            name: (float(v[0]), float(np.percentile(v[1:], 2.5)), float(np.percentile(v[1:], 97.5)))
            for name, v in values.items()
        }


def _pooled(sums: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    objects = 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)
    functions = 100 * sums[:, 2] / np.maximum(sums[:, 3], 1)
    return {"obj_iou": objects, "func_iou": functions, "f1_iou": f1(objects, functions)}
