"""Differences of two methods for several figures at once, by the same resamples that their own intervals use.

`ercr.metrics.pooled.compare` tests one figure and draws anew for it. A report tests every figure of every method, so
here the draws of a pair serve all its figures. Values and intervals are the same; the permutation test is the same
test, drawn differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.metrics.pooled import Pooled, _draws, _figure, _parts, _percentiles
from ercr.report.document import Figure

_RESAMPLES = 2000  # as `Pooled.summary` takes
_SWAPS = 5000
_AT_ONCE = 500


def differences(a: Pooled, b: Pooled, figures: Sequence[str]) -> dict[str, Figure]:
    """Each figure of `a` minus that of `b` over their common images; nothing where they have none in common."""
    common, parts = a.images.keys() & b.images.keys(), _parts(figures)
    if not common or not figures:
        return {}
    one, other = a._table(parts, common), b._table(parts, common)
    both, width = np.hstack([one, other]), one.shape[1]
    drawn = np.concatenate([draws @ both for draws in _draws(len(both), _RESAMPLES, seed=0)])
    swapped = _swaps(one, other)
    found = {}
    for name in figures:
        value = float(_figure(name, parts, one.sum(0)) - _figure(name, parts, other.sum(0)))
        low, high = _percentiles(_figure(name, parts, drawn[:, :width]) - _figure(name, parts, drawn[:, width:]))
        if np.isfinite(value):
            found[name] = Figure(value, low, high, p=_p_value(name, parts, swapped, value))
    return found


def _swaps(one: NDArray[Any], other: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sums of both methods when they change places at random, image by image."""
    rng = np.random.default_rng(0)
    gap = other - one
    moved = [rng.integers(0, 2, (_AT_ONCE, len(gap)), np.int8).astype(float) @ gap for _ in range(_SWAPS // _AT_ONCE)]
    shift = np.concatenate(moved)
    return one.sum(0) + shift, other.sum(0) - shift


def _p_value(name: str, parts: list[str], swapped: tuple[NDArray[Any], NDArray[Any]], value: float) -> float:
    """Two-sided: how often chance alone gives at least this difference; what was seen counts as one of the draws."""
    chance = np.abs(_figure(name, parts, swapped[0]) - _figure(name, parts, swapped[1]))
    as_large = chance[~np.isnan(chance)] >= abs(value) * (1 - 1e-12)
    return float((as_large.sum() + 1) / (len(as_large) + 1))
