"""Scores of a run, computed from its rows by the accumulators of `metrics/`; reads no file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa
import pyarrow.compute as pc

from ercr.evaluate import image_sums
from ercr.metrics.pooled import Interval, Pooled

COLUMNS = ["index", *image_sums.COLUMNS, *image_sums.PLACES]  # all that scores are computed from


def pool(table: pa.Table, budgets: Sequence[float] = ()) -> dict[str, Pooled]:
    """Sums per image for every method; failed rows add nothing."""
    scored = table.filter(pc.equal(table["status"], "ok"))
    pooled = {str(method): Pooled() for method in pc.unique(table["method"]).to_pylist()}
    for method, sample, _, _, *texts in image_sums.samples(scored):
        pairs = {
            name: (value, 1.0) for name, value in zip(("rouge_l", "meteor"), texts, strict=True) if value is not None
        }
        pooled[method].add(sample, pairs)
    sums = (image_sums.words(scored), image_sums.faithfulness(scored, budgets), image_sums.places(scored))
    for method, sample, pairs in (found for kind in sums for found in kind):
        pooled[method].add(sample, pairs)
    for method, sample, _, _, pairs in image_sums.suppression(scored):
        pooled[method].add(sample, pairs)
    return pooled


def scores(table: pa.Table, budgets: Sequence[float] = ()) -> dict[str, dict[str, dict[str, float | None]]]:
    """Every score of every method: value, bootstrap 95 % confidence interval over images, and sample sizes.

    `n` is the number of images that have the score, `words` the number of words that it is a mean over. A value is
    None where no image has the score.
    """
    return {
        method: {name: _plain(name, interval) for name, interval in pooled.summary().items()}
        for method, pooled in pool(table, budgets).items()
    }


def _plain(name: str, interval: Interval) -> dict[str, float | None]:
    found = {key: None if math.isnan(value) else value for key, value in asdict(interval).items()}
    total = found.pop("total") or 0
    return {**found, "words": int(total)} if image_sums.is_mean_over_words(name) else found


def failures(table: pa.Table) -> dict[str, int]:
    """Number of failed samples by the stage that failed (input, model, score, faithfulness)."""
    failed = table.filter(pc.equal(table["status"], "failed")).select(["index", "reason"]).to_pylist()
    kinds = {(row["index"], row["reason"].partition(":")[0]) for row in failed}
    return dict(sorted(Counter(kind for _, kind in kinds).items()))
