"""Scores of a dataset from sums per image: mergeable in any order, bootstrap intervals, paired comparison of methods.

Every score is a ratio of two sums over the images (sum of IoUs over the number of words, mass after over mass
before, …) or is derived from such ratios. So a part of a dataset is described by one row of sums per image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.errors import InputError, nearest

Table = NDArray[np.float64]
# scores that are the harmonic mean of two others
HARMONIC = {"f1_iou": ("obj_iou", "func_iou")}
_AT_ONCE = 250  # resamples held in memory together


@dataclass(frozen=True)
class Interval:
    """A score and its bootstrap 95 % confidence interval over images; NaN if no image has the score."""

    value: float
    low: float
    high: float
    n: int  # images that have the score; for one derived from others, the smallest of their numbers
    total: float = 0.0  # the denominator of the same one: the number of words, for a mean over words


@dataclass(frozen=True)
class Comparison:
    """A score of one method minus that of another, over the images that both have."""

    difference: float
    low: float  # paired bootstrap, 95 %
    high: float
    p: float  # two-sided permutation test: the methods are swapped at random, image by image
    p_bootstrap: float  # twice the smaller share of resamples on either side of 0
    p_wilcoxon: float  # signed ranks of the images' own differences
    n: int  # images that have the score for either method
    total: float  # the denominator: the smaller of the two methods'


@dataclass
class Pooled:
    """Sums of numerators and denominators per image and score."""

    images: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)

    def add(self, image: str, sums: Mapping[str, tuple[float, float]]) -> None:
        """Add (numerator, denominator) of some scores of an image to its sums."""
        row = self.images.setdefault(image, {})
        for name, (numerator, denominator) in sums.items():
            before = row.get(name, (0.0, 0.0))
            row[name] = (before[0] + float(numerator), before[1] + float(denominator))

    def merge(self, other: Pooled) -> Pooled:
        """Both together; sums of an image that both have are added."""
        both = Pooled({image: dict(row) for image, row in self.images.items()})
        for image, row in other.images.items():
            both.add(image, row)
        return both

    @property
    def names(self) -> list[str]:
        """Names of all scores, those derived from others last."""
        names = list(dict.fromkeys(name for image in sorted(self.images) for name in sorted(self.images[image])))
        return names + [name for name, parts in HARMONIC.items() if set(parts) <= set(names)]

    def value(self, name: str) -> float:
        """A score over all images; NaN if no image has it."""
        self._require(name)
        parts = _parts([name])
        return float(_score(name, parts, self._table(parts, self.images).sum(0))) if self.images else np.nan

    def summary(self, resamples: int = 2000, seed: int = 0) -> dict[str, Interval]:
        """Every score with its interval. All scores, and all methods over the same images, use the same resamples."""
        names, parts = self.names, _parts(self.names)
        if not names:
            return {}
        table = self._table(parts, self.images)
        drawn = np.concatenate([times @ table for times in draws(len(table), resamples, seed)])
        return {name: self._interval(name, parts, table, drawn) for name in names}

    def _interval(self, name: str, parts: list[str], table: Table, drawn: Table) -> Interval:
        low, high = _percentiles(_score(name, parts, drawn))
        return Interval(float(_score(name, parts, table.sum(0))), low, high, *_sample_size(name, parts, table))

    def _table(self, parts: list[str], images: Iterable[str]) -> Table:
        """Sums [images by name, 2 per part]: the order in which images came must not affect the resamples."""
        rows = [[self.images[image].get(part, (0.0, 0.0)) for part in parts] for image in sorted(images)]
        return np.array(rows, float).reshape(len(rows), 2 * len(parts))

    def _require(self, name: str) -> None:
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise InputError(f"There is no score {name!r}; there are {known}.{nearest(name, self.names)}")


def compare(a: Pooled, b: Pooled, name: str, resamples: int = 2000, seed: int = 0) -> Comparison:
    """The score `name` of `a` minus that of `b` over their common images, with interval and p-values."""
    return compare_all(a, b, [name], resamples, seed)[name]


def compare_all(
    a: Pooled, b: Pooled, scores: Iterable[str], resamples: int = 2000, seed: int = 0
) -> dict[str, Comparison]:
    """The same for several scores at once: they share the resamples of the interval and the swaps of the test."""
    names = list(scores)
    for pooled in (a, b):
        for name in names:
            pooled._require(name)
    common, parts = a.images.keys() & b.images.keys(), _parts(names)
    if not common:
        raise InputError("The two methods have no image in common, so they cannot be compared.")
    one, other = a._table(parts, common), b._table(parts, common)
    both = np.hstack([one, other])
    drawn = np.concatenate([times @ both for times in draws(len(both), resamples, seed)])
    moved = np.concatenate([swaps @ (other - one) for swaps in _swaps(len(one), resamples, seed)])

    def compared(name: str) -> Comparison:
        def difference(first: Table, second: Table) -> Any:
            return _score(name, parts, first) - _score(name, parts, second)

        chance = difference(drawn[:, : one.shape[1]], drawn[:, one.shape[1] :])
        chance = chance[~np.isnan(chance)]
        fewer = min(np.count_nonzero(chance <= 0), np.count_nonzero(chance >= 0))
        observed = float(difference(one.sum(0), other.sum(0)))
        return Comparison(
            observed,
            *_percentiles(chance),
            p=_permutation_p(difference(one.sum(0) + moved, other.sum(0) - moved), observed, len(one)),
            p_bootstrap=min(1.0, 2 * (fewer + 1) / (len(chance) + 1)),
            p_wilcoxon=_wilcoxon_p(difference(one, other)),
            n=_sample_size(name, parts, np.maximum(one, other))[0],
            total=min(_sample_size(name, parts, side)[1] for side in (one, other)),
        )

    return {name: compared(name) for name in names}


def _parts(scores: Iterable[str]) -> list[str]:
    """The ratios that scores are derived from."""
    return list(dict.fromkeys(part for name in scores for part in HARMONIC.get(name, (name,))))


def _score(name: str, parts: list[str], sums: Table) -> Any:
    """A score from sums [..., 2 per part]; NaN where a denominator is 0."""
    ratios = [_ratio(sums, 2 * parts.index(part)) for part in HARMONIC.get(name, (name,))]
    return ratios[0] if len(ratios) == 1 else harmonic(*ratios)


def _ratio(sums: Table, at: int) -> Any:
    below = sums[..., at + 1]
    return np.where(below != 0, sums[..., at] / np.where(below != 0, below, 1), np.nan)


def _sample_size(name: str, parts: list[str], table: Table) -> tuple[int, float]:
    """Number of images with a score, and the sum of its denominators; of several parts, the smallest."""
    columns = [2 * parts.index(part) + 1 for part in HARMONIC.get(name, (name,))]
    return min((int((table[:, at] != 0).sum()), float(table[:, at].sum())) for at in columns)


def harmonic(one: Any, other: Any) -> Any:
    """Harmonic mean, 0 where both are 0."""
    total = one + other
    return np.where(total == 0, 0.0, 2 * one * other / np.where(total == 0, 1, total))


def draws(images: int, resamples: int = 2000, seed: int = 0) -> Iterable[Table]:
    """How often each image is drawn, [some resamples, images] at a time."""
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, _AT_ONCE):
        count = min(_AT_ONCE, resamples - start)
        yield rng.multinomial(images, np.full(images, 1 / images), count).astype(float)


def _percentiles(values: NDArray[Any]) -> tuple[float, float]:
    known = values[~np.isnan(values)]
    if not len(known):
        return np.nan, np.nan
    low, high = np.percentile(known, [2.5, 97.5])
    return float(low), float(high)


def _permutation_p(swapped: Table, observed: float, images: int) -> float:
    """Share of the swaps of methods, image by image, that give as large a difference; all swaps if they are few."""
    if np.isnan(observed):
        return np.nan
    # an undefined difference counts as large
    as_large, total = int(np.count_nonzero(~(abs(swapped) < abs(observed) - 1e-12))), len(swapped)
    # with random swaps the observed one counts, too, so that p is never 0
    return as_large / total if 2**images == total else (as_large + 1) / (total + 1)


def _swaps(images: int, resamples: int, seed: int) -> Iterable[Table]:
    """The images whose methods are swapped, [some swaps, images] at a time."""
    if 2**images <= resamples:
        yield (np.arange(2**images)[:, None] >> np.arange(images) & 1).astype(float)
        return
    rng = np.random.default_rng(seed)
    for start in range(0, resamples, _AT_ONCE):
        yield rng.integers(0, 2, (min(_AT_ONCE, resamples - start), images)).astype(float)


def _wilcoxon_p(differences: Table) -> float:
    from scipy.stats import wilcoxon

    known = differences[~np.isnan(differences)]
    return float(wilcoxon(known).pvalue) if np.any(known) else 1.0
