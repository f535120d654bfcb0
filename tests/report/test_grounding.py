"""Runs of the task `grounding` in reports: every signal with intervals, its lead, verdicts, curves."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ercr.evaluate.run import Run
from ercr.evaluate.schema import GROUNDING, SIGNALS
from ercr.report.build import build
from ercr.report.write import write

KINDS = ("present", "random", "popular", "together")


def made(path, images=30, seed=0):
    """A run of made-up rows: `seen` tells most, the lens's rank something, entropy nothing."""
    run, rng = Run(path, GROUNDING), np.random.default_rng(seed)
    rows = []
    for index in range(images):
        head = {"index": index, "sample": f"s{index}", "status": "ok"}
        for drawn in KINDS * 2:
            there = drawn == "present"
            rows.append(
                {**head, **numbers(rng, there), "source": "name", "drawn": drawn, "there": there, "kind": "noun"}
            )
        for word, there in enumerate((None, True, None, bool(rng.random() < 0.6))):
            own = {"source": "own", "there": there, "kind": "function" if there is None else "noun"}
            own |= {"by": None if there is None else "mask", "word": word, "words": 4, "repeated": word == 3}
            rows.append({**head, **numbers(rng, there), **own})
    rows.append({"index": images, "sample": "broken", "status": "failed", "reason": "input: no file"})
    settings = {"format": 2, "task": "grounding", "model": {"name": "made-up"}, "tagger": "none", "versions": {}}
    settings["dataset"] = {"spec": "coco:FOLDER", "samples": images + 1}
    with run.locked():
        run.claim(settings)
        run.write_part(0, range(images + 1), rows)
        run.finish([range(images + 1)])
    return run


def numbers(rng, there):
    sign = 1 if there else -1
    seen = 1 / (1 + np.exp(-(1.5 * sign + rng.normal())))
    found = dict.fromkeys(SIGNALS, 0.0)
    found |= {"lens_rank": float(np.exp(3 - sign + rng.normal())), "entropy": float(rng.random())}
    verdict = "seen" if seen > 0.6 else "guessed" if seen < 0.3 else "unsure"
    return {**found, "seen": seen, "verdict": verdict, "content": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made(tmp_path_factory.mktemp("judged") / "run")


@pytest.fixture(scope="module")
def section(run):
    report = build([run.path])
    assert [section.key for section in report.sections] == ["grounding"]
    assert report.runs[0]["failed"] == 1
    return report.sections[0]


def table(section, ending):
    return next(one for one in section.tables if one.key.endswith(ending))


def test_every_signal_has_its_auroc_with_an_interval(run, section):
    rows = [row for row in run.table().to_pylist() if row["source"] == "name"]
    there = [row["there"] for row in rows]
    found = {row.heads[0]: row.cells for row in table(section, "made-up-coco-caption").rows}
    for label, expected in (
        ("seen", [row["seen"] for row in rows]),
        ("entropy (low)", [-row["entropy"] for row in rows]),
    ):
        estimate = found[label]["names auroc"]
        assert estimate.value == pytest.approx(roc_auc_score(there, expected))
        assert estimate.low < estimate.value < estimate.high
        assert (estimate.images, estimate.words) == (30, len(rows))
    assert found["seen"]["names auroc"].low > 0.7
    assert found["entropy (low)"]["names auroc"].low < 0.5 < found["entropy (low)"]["names auroc"].high


def test_the_lead_of_seen_is_paired(section):
    found = {row.heads[0]: row.cells["names"] for row in table(section, "differences").rows}
    assert "seen" not in found
    assert found["entropy (low)"].low > 0.2
    assert found["entropy (low)"].p < 0.05


def test_verdicts_are_shares_of_their_words(run, section):
    rows = [row for row in run.table().to_pylist() if row["source"] == "name" and not row["there"]]
    expected = 100 * np.mean([row["verdict"] == "seen" for row in rows])
    found = {row.heads[0]: row.cells["value"] for row in table(section, "verdicts").rows}
    assert found["Absent names shown as seen"].value == pytest.approx(expected)
    assert "Calibration error, own nouns" in found


def test_groups_and_curves_are_there_and_written(run, section, tmp_path):
    groups = [row.heads[0] for row in table(section, "groups").rows]
    assert groups[:4] == ["names", *(f"names, absent ones {kind}" for kind in ("random", "popular", "together"))]
    assert "own nouns, second half" in groups
    assert {plot.key.rpartition("-")[2] for plot in section.plots} == {"roc", "reliability"}
    for plot in section.plots:
        assert all(0 <= value <= 1 for series in plot.series for value in (*series.x, *series.y))
    files = write(build([run.path]), tmp_path / "report")
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "Seen or guessed" in text
    data = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [one["key"] for one in data["sections"]] == ["grounding"]
    assert files
