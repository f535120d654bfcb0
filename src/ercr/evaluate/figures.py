"""Figures of a run from its rows, by the accumulators of `metrics/`; reads no file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa
import pyarrow.compute as pc

from ercr.evaluate import sums
from ercr.metrics.pooled import Interval, Pooled

COLUMNS = ["index", *sums.COLUMNS]  # all that figures are made of


def pool(table: pa.Table, budgets: Sequence[float] = ()) -> dict[str, Pooled]:
    """Sums of every method by image; failed rows add nothing."""
    scored = table.filter(pc.equal(table["status"], "ok"))
    pooled = {str(method): Pooled() for method in pc.unique(table["method"]).to_pylist()}
    for method, sample, _, _, *texts in sums.samples(scored):
        pairs = {
            name: (value, 1.0) for name, value in zip(("rouge_l", "meteor"), texts, strict=True) if value is not None
        }
        pooled[method].add(sample, pairs)
    for method, sample, pairs in [*sums.words(scored), *sums.faithfulness(scored, budgets)]:
        pooled[method].add(sample, pairs)
    for method, sample, _, _, pairs in sums.suppression(scored):
        pooled[method].add(sample, pairs)
    return pooled


def figures(table: pa.Table, budgets: Sequence[float] = ()) -> dict[str, dict[str, dict[str, float | None]]]:
    """Every figure of every method: value, bootstrap 95 % interval over images, and what it rests on.

    `n` counts the images that have it, `words` the words of which it is a mean. A value is None where no image has it.
    """
    return {
        method: {name: _plain(name, interval) for name, interval in sums.summary().items()}
        for method, sums in pool(table, budgets).items()
    }


def _plain(name: str, interval: Interval) -> dict[str, float | None]:
    found = {key: None if math.isnan(value) else value for key, value in asdict(interval).items()}
    total = found.pop("total") or 0
    return {**found, "words": int(total)} if sums.is_mean_over_words(name) else found


def failures(table: pa.Table) -> dict[str, int]:
    """Failed samples by what failed (input, model, score, faithfulness)."""
    failed = table.filter(pc.equal(table["status"], "failed")).select(["index", "reason"]).to_pylist()
    kinds = {(row["index"], row["reason"].partition(":")[0]) for row in failed}
    return dict(sorted(Counter(kind for _, kind in kinds).items()))
