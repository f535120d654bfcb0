"""Sums by Arrow over whole tables equal the metrics' own sums, row by row."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from ercr.errors import FileFormatError
from ercr.evaluate import image_sums
from ercr.evaluate.schema import SCHEMA
from ercr.metrics.faithfulness import BUDGETS, CURVE

KINDS = [("noun", 18), ("noun", 7), ("noun", None), ("function", None), ("other", None)]


def made(budgets=CURVE, seed=0):
    """Rows of two methods and four samples; one of the samples failed with one method."""
    rng = np.random.default_rng(seed)
    rows = []
    for method in ("cam", "ercr"):
        for index in range(4):
            head = {"index": index, "sample": f"s{index}", "method": method, "status": "ok"}
            if (method, index) == ("cam", 2):
                rows.append({**head, "status": "failed", "reason": "model: it fell"})
                continue
            text = {"rouge_l": rng.random(), "meteor": rng.random()}
            rows += [{**head, **text, **token(rng, budgets)} for _ in range(rng.integers(3, 9))]
    return rows


def token(rng, budgets):
    kind, category = KINDS[rng.integers(len(KINDS))]
    row = {"kind": kind, "category": category}
    if category is not None and rng.random() < 0.7:
        row |= {f"object_{name}": rng.random() for name in ("iou", "precision", "recall")}
        row |= {"score_whole": rng.normal(), "score_blank": rng.normal()}
        row |= {name: rng.normal(size=len(budgets)).tolist() for name in ("deleted", "inserted")}
    if kind == "function":
        row["function_quiet"] = rng.random()
    if rng.random() < 0.8:
        row |= {f"{what}_{when}": rng.random() for what in ("mass", "area") for when in ("before", "after")}
        if category == 18:  # the other category is not in the picture
            row |= {f"{what}_{when}": rng.random() for what in ("inside", "outside") for when in ("before", "after")}
    return row


def added(found):
    """(numerator, denominator) by method, sample and figure."""
    total = defaultdict(lambda: np.zeros(2))
    for *key, pairs in found:
        for name, pair in pairs.items():
            total[(*key[:2], name)] += pair
    return {key: tuple(pair) for key, pair in total.items()}


def table(rows):
    return pa.Table.from_pylist(rows, SCHEMA)


def agree(found, expected):
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[key] for key in expected], list(expected.values()), atol=1e-12)


def test_samples_come_once_with_their_text_scores():
    rows = made()
    expected = {
        (row["method"], row["sample"]): (row["status"], row.get("reason"), row.get("rouge_l"), row.get("meteor"))
        for row in rows
    }
    found = list(image_sums.samples(table(rows)))
    assert len(found) == len(expected) == 8
    assert {row[:2]: row[2:] for row in found} == expected


def test_word_figures_are_summed_and_counted():
    rows, names = made(), {"object_iou": "obj_iou", "function_quiet": "func_iou", "object_precision": "precision",
                           "object_recall": "recall"}  # fmt: skip
    plain = [
        (row["method"], row["sample"], {n: (row.get(c) or 0, float(row.get(c) is not None)) for c, n in names.items()})
        for row in rows
    ]
    agree(added(image_sums.words(table(rows))), added(plain))


def test_suppression_is_that_of_the_metrics_by_group():
    rows = made()
    plain, counts = [], defaultdict(int)
    for row in rows:
        if row.get("mass_before") is None:
            continue
        group = "object" if row["category"] else "function" if row["kind"] == "function" else "other"
        pairs = {}
        for figure, what in (("supp", "mass"), ("area_red", "area"), ("in_ret", "inside"), ("out_red", "outside")):
            before, after = row.get(f"{what}_before"), row.get(f"{what}_after")
            if before is not None:
                pairs[f"{figure}_{group}"] = (after if figure == "in_ret" else before - after, before)
        plain.append((row["method"], row["sample"], pairs))
        counts[row["method"], row["sample"], group] += 1
    agree(added(image_sums.suppression(table(rows))), added(plain))
    assert {tuple(key): count for *key, count, _ in image_sums.suppression(table(rows))} == counts
    assert list(image_sums.suppression(table([{"method": "cam", "sample": "a", "status": "ok"}]))) == []


@pytest.mark.parametrize(
    "budgets", [CURVE, BUDGETS, (0.0, 0.3), (0.2, 1.0), (0.0, 1.0), (0.1,), (1.0,), (0.0, 0.5, 1.0)], ids=str
)
def test_faithfulness_is_that_of_the_metrics_token_by_token(budgets):
    rows = made(budgets)
    plain = []
    for row in rows:
        if row.get("deleted") is None:
            continue
        own, curve = {}, len(budgets) > 1 and (budgets[0], budgets[-1]) == (0, 1)
        lost = [row["score_whole"] - value for value in row["deleted"]]
        gained = [value - row["score_blank"] for value in row["inserted"]]
        for name, values in (("deletion", lost), ("insertion", gained)):
            own |= {f"{name}_{round(100 * share)}": (value, 1) for share, value in zip(budgets, values, strict=True)}
            own |= {f"{name}_auc": (np.trapezoid(values, budgets), 1)} if curve else {}
        plain.append((row["method"], row["sample"], own))
    agree(added(image_sums.faithfulness(table(rows), budgets)), added(plain))


def test_without_scores_or_budgets_there_is_no_faithfulness():
    rows = made()
    assert list(image_sums.faithfulness(table(rows), ())) == []
    assert list(image_sums.faithfulness(table([{"method": "cam", "sample": "a", "status": "ok"}]), CURVE)) == []
    with pytest.raises(FileFormatError, match="than the 3 of its run"):
        list(image_sums.faithfulness(table(rows), BUDGETS))
