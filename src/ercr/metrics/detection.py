"""How well a number tells words whose thing is in the picture from words whose thing is not; intervals over pictures.

A word counts once; resamples draw pictures with all their words. Nothing here knows where the numbers come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.metrics.pooled import Comparison, Interval, draws

Floats = NDArray[np.float64]
_BINS = 10  # of the calibration error, with equally many words


@dataclass(frozen=True, eq=False)
class Told:
    """Numbers of words, whether each word's thing was there, and the picture of each."""

    values: Floats  # [n], higher where the word's thing is there
    there: NDArray[np.bool_]  # [n]
    images: Sequence[str]  # [n]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def both(self) -> bool:
        """Whether there are words of both kinds, without which nothing can be told apart."""
        return bool(self.there.any() and not self.there.all())

    @cached_property
    def _image(self) -> tuple[list[str], NDArray[np.int64]]:
        """The pictures in the order of their names, and the index of each word's."""
        names, index = np.unique(np.asarray(self.images, str), return_inverse=True)
        return names.tolist(), index

    # values of a sample, or of resamples where each word counts `weights` [B, n] times

    def auroc(self, weights: Floats | None = None) -> Any:
        """Area under the ROC curve: the share of pairs in the right order; ties count half."""
        there, not_there = self._grouped(weights)
        below = not_there.cumsum(-1) - not_there
        pairs = there.sum(-1) * not_there.sum(-1)
        return _ratio((there * (below + 0.5 * not_there)).sum(-1), pairs)

    def average_precision(self, weights: Floats | None = None) -> Any:
        """Mean precision over the words that are there, each at its own value as the threshold."""
        there, not_there = (part[..., ::-1] for part in self._grouped(weights))
        found, all_ = there.cumsum(-1), (there + not_there).cumsum(-1)
        precision = _ratio(found, all_, 0.0)
        return _ratio((there * precision).sum(-1), there.sum(-1))

    def calibration_error(self, weights: Floats | None = None) -> Any:
        """Mean distance of the number from the share that was there, over ten groups of words by their number."""
        order = np.argsort(self.values, kind="stable")
        group = np.empty(len(order), int)
        group[order] = np.arange(len(order)) * min(_BINS, len(order)) // max(len(order), 1)
        member = np.eye(_BINS)[group]  # [n, bins]
        counts = np.ones((1, len(order))) if weights is None else weights
        apart = np.abs((counts * (self.there - self.values)) @ member).sum(-1)
        found = _ratio(apart, counts.sum(-1))
        return found if weights is not None else found[0]

    def accuracy(self, weights: Floats | None = None, threshold: float = 0.5) -> Any:
        """Share of words on the right side of a threshold."""
        right = ((self.values >= threshold) == self.there).astype(float)
        return right.mean() if weights is None else _ratio(weights @ right, weights.sum(-1))

    def share(self, chosen: NDArray[np.bool_], among: NDArray[np.bool_]) -> Interval:
        """The share of chosen words among some, with its interval."""
        names, index = self._image
        hits = np.bincount(index, (chosen & among).astype(float), len(names))
        every = np.bincount(index, among.astype(float), len(names))
        drawn = np.concatenate([_ratio(times @ hits, times @ every) for times in draws(len(names))])
        total = int(among.sum())
        value = float(hits.sum() / total) if total else float("nan")
        return Interval(value, *_percentiles(drawn), n=int((every > 0).sum()), total=total)

    def held_out_accuracy(self, seed: int = 0) -> float:
        """Accuracy at the best threshold of the other half of the pictures, for both halves."""
        names, index = self._image
        half = np.random.default_rng(seed).permutation(len(names))[index] % 2
        right = 0
        for one in (0, 1):
            threshold = _best_threshold(self.values[half != one], self.there[half != one])
            right += int(((self.values >= threshold) == self.there)[half == one].sum())
        return right / len(self) if len(self) else float("nan")

    # with intervals

    def interval(self, score: Callable[[Floats | None], Any]) -> Interval:
        """A score with its bootstrap interval over pictures."""
        found = np.concatenate([np.atleast_1d(score(weights)) for weights in self._resamples()])
        return Interval(float(score(None)), *_percentiles(found), n=len(self._image[0]), total=len(self))

    def over(self, other: Told) -> Comparison:
        """The AUROC minus that of another number of the same words, over the same resamples."""
        difference = float(self.auroc() - other.auroc())
        drawn = np.concatenate([self.auroc(weights) - other.auroc(weights) for weights in self._resamples()])
        drawn = drawn[np.isfinite(drawn)]
        fewer = min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0))
        p = min(1.0, 2 * (fewer + 1) / (len(drawn) + 1))
        images = len(self._image[0])
        return Comparison(difference, *_percentiles(drawn), p, p, float("nan"), n=images, total=len(self))

    def _resamples(self) -> list[Floats]:
        names, index = self._image
        return [np.asarray(times[:, index], np.float64) for times in draws(len(names))]

    def _grouped(self, weights: Floats | None) -> tuple[Floats, Floats]:
        """Sums [.., groups] of words that are there and that are not, by equal values, the lowest value first."""
        order, starts = self._order
        counts = np.ones(len(order)) if weights is None else weights[:, order]
        there = self.there[order]
        return np.add.reduceat(counts * there, starts, -1), np.add.reduceat(counts * ~there, starts, -1)

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        order = np.argsort(self.values, kind="stable")
        first = np.concatenate([[True], np.diff(self.values[order]) != 0])
        return order, np.flatnonzero(first)


def roc(told: Told) -> tuple[Floats, Floats]:
    """Shares of absent and of present words above every threshold, from the highest on."""
    there, not_there = (part[::-1] for part in told._grouped(None))
    start = np.zeros(1)
    return (
        np.concatenate([start, not_there.cumsum() / max(not_there.sum(), 1)]),
        np.concatenate([start, there.cumsum() / max(there.sum(), 1)]),
    )


def reliability(told: Told, bins: int = _BINS) -> list[tuple[float, Interval]]:
    """The mean number of ten groups of words by their number, and the share that was there."""
    order = np.argsort(told.values, kind="stable")
    found = []
    for part in np.array_split(order, min(bins, len(order)) or 1):
        if len(part):
            among = np.zeros(len(told), bool)
            among[part] = True
            found.append((float(told.values[part].mean()), told.share(told.there, among)))
    return found


def _best_threshold(values: Floats, there: NDArray[np.bool_]) -> float:
    """The threshold with the most words on the right side, half-way between two of them."""
    if not len(values):
        return 0.0
    order = np.argsort(-values, kind="stable")
    best = int(np.argmax(np.concatenate([[0], np.cumsum(np.where(there[order], 1, -1))])))
    edges = np.concatenate([[np.inf], values[order], [-np.inf]])
    return float((edges[best] + edges[best + 1]) / 2)


def _ratio(above: Any, below: Any, empty: float = np.nan) -> Any:
    below = np.asarray(below, float)
    return np.where(below != 0, above / np.where(below != 0, below, 1), empty)


def _percentiles(values: Floats) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)
