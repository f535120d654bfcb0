"""Figures of a run from its rows, by the accumulators of `metrics/`; reads no file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa
import pyarrow.compute as pc

from ercr.evaluate.schema import FAITHFULNESS, SUPPRESSION
from ercr.metrics import faithfulness, suppression
from ercr.metrics.pooled import Interval, Pooled

# figure: the column whose values are averaged over all words, or over all samples
_WORDS = {
    "obj_iou": "object_iou",
    "func_iou": "function_quiet",
    "precision": "object_precision",
    "recall": "object_recall",
}
_SAMPLES = {"rouge_l": "rouge_l", "meteor": "meteor"}
_TOKENS = [name for name, _ in (*SUPPRESSION, *FAITHFULNESS)]
COLUMNS = ["index", "sample", "method", "status", "reason", "kind", "category"]
COLUMNS += [*_WORDS.values(), *_SAMPLES.values(), *_TOKENS]  # all that figures are made of


def pool(table: pa.Table, budgets: Sequence[float] = ()) -> dict[str, Pooled]:
    """Sums of every method by image; failed rows add nothing."""
    scored = table.filter(pc.equal(table["status"], "ok"))
    pooled = {method: Pooled() for method in _in_order(table["method"])}
    columns = [(column, how) for column in _WORDS.values() for how in ("sum", "count")]
    columns += [(column, how) for column in _SAMPLES.values() for how in ("max", "count")]
    for row in scored.group_by(["method", "index", "sample"]).aggregate(columns).to_pylist():
        sums = {figure: (row[f"{c}_sum"] or 0.0, row[f"{c}_count"]) for figure, c in _WORDS.items()}
        sums |= {figure: (row[f"{c}_max"], 1) for figure, c in _SAMPLES.items() if row[f"{c}_count"]}
        pooled[row["method"]].add(row["sample"], sums)
    for row in scored.filter(pc.is_valid(scored["score_whole"])).to_pylist():
        own = row["score_whole"], row["score_blank"], row["deleted"], row["inserted"]
        pooled[row["method"]].add(row["sample"], faithfulness.sums(*own, budgets))
    for row in scored.filter(pc.is_valid(scored["mass_before"])).to_pylist():
        group = suppression.token_group(row["kind"], row["category"])
        pooled[row["method"]].add(row["sample"], suppression.sums(row, group))
    return pooled


def figures(table: pa.Table, budgets: Sequence[float] = ()) -> dict[str, dict[str, dict[str, float | None]]]:
    """Every figure of every method: value and bootstrap 95 % interval over images, None where no image has it."""
    return {
        method: {name: _plain(interval) for name, interval in sums.summary().items()}
        for method, sums in pool(table, budgets).items()
    }


def _plain(interval: Interval) -> dict[str, float | None]:
    return {key: None if math.isnan(value) else value for key, value in asdict(interval).items()}


def failures(table: pa.Table) -> dict[str, int]:
    """Failed samples by what failed (input, model, score, faithfulness)."""
    failed = table.filter(pc.equal(table["status"], "failed")).select(["index", "reason"]).to_pylist()
    kinds = {(row["index"], row["reason"].partition(":")[0]) for row in failed}
    return dict(sorted(Counter(kind for _, kind in kinds).items()))


def _in_order(column: pa.ChunkedArray) -> list[str]:
    return [str(value) for value in pc.unique(column).to_pylist()]
