"""Sums per image from the rows of a run, by Arrow and NumPy over whole batches.

Names and meaning are those of `ercr.metrics`, which computes the scores: each is a (numerator, denominator) pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ercr.errors import FileFormatError
from ercr.metrics.faithfulness import auc, changes

_KEYS = ["method", "sample"]
_WORDS = {
    "obj_iou": "object_iou",
    "func_iou": "function_quiet",
    "precision": "object_precision",
    "recall": "object_recall",
}
# score: which property of the map, and whether the removed or the kept share is measured
_SUPPRESSION = {
    "supp": ("mass", "removed"),
    "area_red": ("area", "removed"),
    "in_ret": ("inside", "kept"),
    "out_red": ("outside", "removed"),
}
_MASSES = [f"{what}_{when}" for what, _ in _SUPPRESSION.values() for when in ("before", "after")]
COLUMNS = [
    *_KEYS,
    *("status", "reason", "rouge_l", "meteor", "kind", "category"),
    *_WORDS.values(),
    *_MASSES,
    *("score_whole", "score_blank", "deleted", "inserted"),
]
PLACES = ("share_there", "most_there")  # columns that runs of earlier versions do not have
Pairs = dict[str, tuple[float, float]]


def is_mean_over_words(score: str) -> bool:
    """Whether a score is divided by a number of words: all but those of answers and of masses."""
    return score not in ("rouge_l", "meteor") and score.rpartition("_")[0] not in _SUPPRESSION


def samples(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Method, sample, status, reason, ROUGE-L and METEOR, once per method and sample."""
    once = table.group_by([*_KEYS, "status", "reason"]).aggregate([("rouge_l", "max"), ("meteor", "max")])
    columns = [*_KEYS, "status", "reason", "rouge_l_max", "meteor_max"]
    yield from zip(*(once[name].to_pylist() for name in columns), strict=True)


def words(table: pa.Table) -> Iterator[tuple[str, str, Pairs]]:
    """IoU, precision and recall of object words; for function words, the share of cells below the threshold."""
    wanted = [(column, how) for column in _WORDS.values() for how in ("sum", "count")]
    grouped = table.group_by(_KEYS).aggregate(wanted).to_pydict()
    for row, key in enumerate(zip(grouped["method"], grouped["sample"], strict=True)):
        pairs = {
            score: (grouped[f"{column}_sum"][row] or 0.0, float(grouped[f"{column}_count"][row]))
            for score, column in _WORDS.items()
        }
        yield *key, pairs


def suppression(table: pa.Table) -> Iterator[tuple[str, str, str, int, Pairs]]:
    """What the context residual removed from the maps of object, function and other tokens."""
    found = table.filter(pc.is_valid(table["mass_before"]))
    if not found.num_rows:
        return
    other = pc.if_else(pc.equal(found["kind"], "function"), "function", "other")
    found = found.append_column("group", pc.if_else(pc.is_valid(found["category"]), "object", other))
    wanted = [(column, "sum") for column in _MASSES]
    counts = [("mass_before", "count"), ("inside_before", "count")]
    grouped = found.group_by([*_KEYS, "group"]).aggregate(wanted + counts).to_pydict()
    for row, group in enumerate(grouped["group"]):
        pairs = {}
        for score, (what, how) in _SUPPRESSION.items():
            before, after = grouped[f"{what}_before_sum"][row], grouped[f"{what}_after_sum"][row]
            if before is not None and after is not None:
                pairs[f"{score}_{group}"] = (before - after if how == "removed" else after, before)
        yield grouped["method"][row], grouped["sample"][row], group, grouped["mass_before_count"][row], pairs


def places(table: pa.Table) -> Iterator[tuple[str, str, Pairs]]:
    """Object words in several pictures or a clip: the share of evidence where the object is, and how often most."""
    if not set(PLACES) <= set(table.column_names):
        return
    found = table.filter(pc.and_(pc.is_valid(table["object_iou"]), pc.is_valid(table["share_there"])))
    if not found.num_rows:
        return
    numbers = {name: found[name].cast(pa.float64()) for name in PLACES}
    grouped = pa.table({**{key: found[key] for key in _KEYS}, **numbers}).group_by(_KEYS)
    summed = grouped.aggregate([(name, how) for name in PLACES for how in ("sum", "count")]).to_pydict()
    for row, key in enumerate(zip(summed["method"], summed["sample"], strict=True)):
        yield *key, {name: (summed[f"{name}_sum"][row], float(summed[f"{name}_count"][row])) for name in PLACES}


def faithfulness(table: pa.Table, budgets: Sequence[float]) -> Iterator[tuple[str, str, Pairs]]:
    """Log-probability lost by deletion and gained by insertion at every budget, and the areas of whole curves."""
    found = table.filter(pc.and_(pc.is_valid(table["score_whole"]), pc.is_valid(table["deleted"])))
    if not found.num_rows or not budgets:
        return
    ends = [_numbers(found[name]) for name in ("score_whole", "score_blank")]
    lost, gained = changes(*ends, *(_lists(found[name], len(budgets)) for name in ("deleted", "inserted")))
    names = [f"{kind}_{round(100 * share)}" for kind in ("deletion", "insertion") for share in budgets]
    values = [lost, gained]
    if len(budgets) > 1 and budgets[0] == 0 and budgets[-1] == 1:
        names += ["deletion_auc", "insertion_auc"]
        values += [auc(lost, budgets)[:, None], auc(gained, budgets)[:, None]]
    columns = {name: np.hstack(values)[:, at] for at, name in enumerate(names)}
    grouped = pa.table({**{key: found[key] for key in _KEYS}, **columns}).group_by(_KEYS)
    summed = grouped.aggregate([*((name, "sum") for name in names), (names[0], "count")]).to_pydict()
    for row, key in enumerate(zip(summed["method"], summed["sample"], strict=True)):
        count = float(summed[f"{names[0]}_count"][row])
        yield *key, {name: (summed[f"{name}_sum"][row], count) for name in names}


def _numbers(column: pa.ChunkedArray) -> Any:
    return np.asarray(column.to_numpy(zero_copy_only=False), float)


def _lists(column: pa.ChunkedArray, length: int) -> Any:
    """Lists of one length as an array [rows, length]."""
    flat = pc.list_flatten(column).to_numpy(zero_copy_only=False)
    if len(flat) != length * len(column):
        raise FileFormatError(f"A token was scored at other budgets than the {length} of its run: evaluate again.")
    return np.asarray(flat, float).reshape(-1, length)
