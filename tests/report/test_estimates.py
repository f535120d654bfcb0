"""Scores of a report against plain sums over the rows, against `Run.scores`, and tests against `metrics.compare`."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise

import pytest

from ercr.evaluate import Run
from ercr.metrics.pooled import compare
from ercr.report import runs as reading
from ercr.report.build import build
from ercr.report.cells import _adjusted
from ercr.report.document import Estimate, Row
from ercr.report.paired import differences
from tests.report.synthetic import CURVE, make_run

METHODS = ["cam", "tam", "ercr", "ercr:views=1", "ercr:context=none"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    rows = make_run(folder, METHODS, images=30, budgets=CURVE, suppression=True, failed=(4,))
    return folder, rows


def find(report, key, head):
    table = next(table for table in report.tables() if table.key == key)
    return next(row.cells for row in table.rows if row.heads[-1] == head)


def mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values)


def test_word_figures_are_means_over_words(run):
    folder, rows = run
    cells = find(build([folder]), "baselines-qwen2-vl-2b", "ERCR")
    own = [row for row in rows if row["method"] == "ercr"]
    objects, quiet = (100 * mean(r.get(name) for r in own) for name in ("object_iou", "function_quiet"))
    assert cells["COCO Caption obj_iou"].value == pytest.approx(objects)
    assert cells["COCO Caption func_iou"].value == pytest.approx(quiet)
    for score, column in (("obj_iou", "object_iou"), ("f1_iou", "object_iou"), ("func_iou", "function_quiet")):
        known = [row["sample"] for row in own if row.get(column) is not None]
        cell = cells[f"COCO Caption {score}"]
        assert (cell.words, cell.images) == (len(known), len(set(known)))
    assert cells["COCO Caption f1_iou"].value == pytest.approx(2 * objects * quiet / (objects + quiet))


def test_suppression_is_what_is_gone_of_each_groups_mass(run):
    folder, rows = run
    cells = find(build([folder]), "suppression", "Function tokens")
    own = [row for row in rows if row["method"] == "cam" and row.get("kind") == "function"]
    before, after = (sum(row[f"mass_{when}"] for row in own) for when in ("before", "after"))
    assert cells["n"].value == len(own)
    assert cells["supp"].value == pytest.approx(100 * (1 - after / before))
    assert "in_ret" not in cells
    assert cells["supp"].words is None
    assert cells["supp"].images == len({row["sample"] for row in own})


def test_deletion_and_insertion_are_means_over_object_words(run):
    folder, rows = run
    cells = find(build([folder]), "faithfulness-coco-caption", "TAM")
    own = [row for row in rows if row["method"] == "tam" and "score_whole" in row]
    at = CURVE.index(0.2)
    assert cells["deletion_20"].value == pytest.approx(mean(r["score_whole"] - r["deleted"][at] for r in own))
    assert cells["insertion_20"].value == pytest.approx(mean(r["inserted"][at] - r["score_blank"] for r in own))
    gains = [mean(r["inserted"][i] - r["score_blank"] for r in own) for i in range(len(CURVE))]
    area = sum((a + b) / 2 / (len(CURVE) - 1) for a, b in pairwise(gains))
    assert cells["insertion_auc"].value == pytest.approx(area)
    assert (cells["insertion_auc"].words, cells["insertion_auc"].images) == (len(own), len({r["sample"] for r in own}))


def test_batches_of_any_size_give_the_scores_of_the_run(run, monkeypatch):
    folder, _ = run
    monkeypatch.setattr(reading, "_BATCH", 7)
    read = reading.read_run(folder).scores
    for method, scores in Run.open(folder).scores().items():
        own = read[method]
        known = {**own.summary("words"), **own.summary("suppression"), **own.summary("faithfulness")}
        for name in set(scores) - {"rouge_l", "meteor"}:
            # the same intervals too: both draw the same images
            found = [known[name].value, known[name].low, known[name].high]
            assert found == pytest.approx([scores[name][part] for part in ("value", "low", "high")]), name


def test_failed_images_count_as_failed_and_add_nothing(run):
    read = reading.read_run(run[0])
    assert (read.images, read.count("failed"), read.count("left_out")) == (30, 1, 0)
    assert [len(images) for images in read.reasons.values()] == [1]
    assert all("image-00004" not in scores.words.images for scores in read.scores.values())


def test_differences_are_those_of_compare(run):
    scores = reading.read_run(run[0]).scores
    one, other = scores["tam"].words, scores["ercr:views=1"].words
    for name, found in differences(one, other, ["obj_iou", "func_iou", "f1_iou"]).items():
        wanted = compare(one, other, name)
        assert [found.value, found.low, found.high] == pytest.approx([wanted.difference, wanted.low, wanted.high])
        assert found.p == wanted.p


def test_p_values_are_adjusted_by_holm():
    rows = [Row((str(p),), {"x": Estimate(0.0, p=p)}) for p in (0.04, 0.01, 0.03, 0.5)]
    assert [row.cells["x"].p for row in _adjusted(rows)] == pytest.approx([0.09, 0.04, 0.09, 0.5])


def test_every_method_is_tested_against_the_one_asked_for(run):
    folder, _ = run
    table = next(t for t in build([folder], reference="cam").tables() if t.key.endswith("2b-differences"))
    assert "CAM" in table.title
    assert {row.heads[-1] for row in table.rows} == {"TAM", "ERCR"}
    own = {row.heads[-1]: row.cells["COCO Caption f1_iou"] for row in table.rows}
    scores = reading.read_run(folder).scores
    gap = scores["ercr"].words.value("f1_iou") - scores["cam"].words.value("f1_iou")
    assert own["ERCR"].value == pytest.approx(100 * gap)


def test_only_what_was_measured_is_shown(tmp_path):
    make_run(tmp_path / "run", ["cam", "tam"])
    report = build([tmp_path / "run"])
    assert [section.key for section in report.sections] == ["baselines", "answers"]
    commands = " ".join(missing.command for missing in report.missing)
    for table in ("ablation", "subword", "suppression", "faithfulness", "efficiency", "views", "scales"):
        assert f"ercr reproduce {table} --model Qwen/Qwen2-VL-2B-Instruct --data coco:/data/coco" in commands
    assert all(math.isfinite(f.value) for t in report.tables() for r in t.rows for f in r.cells.values())


def test_several_runs_share_tables(tmp_path):
    plans = {
        "a": (["cam", "tam", "ercr"], "Qwen/Qwen2-VL-2B-Instruct", "coco:/data/coco", "tam"),
        "b": (["cam", "tam", "ercr"], "Qwen/Qwen2-VL-2B-Instruct", "grandf:/data/grandf", "tam"),
        "c": (["cam", "ercr"], "llava-hf/llava-1.5-7b-hf", "coco:/data/coco", "tam"),
        "d": (["ercr:views=1", "ercr:views=2", "ercr"], "llava-hf/llava-1.5-7b-hf", "grandf:/data/grandf", "tam"),
        "e": (["tam", "ercr"], "Qwen/Qwen2-VL-2B-Instruct", "coco:/data/coco", "tam,subword=first"),
    }
    for name, (methods, model, dataset, protocol) in plans.items():
        make_run(tmp_path / name, methods, model, dataset, protocol=protocol)
    report = build([tmp_path / name for name in plans])
    tables = {table.key: table for table in report.tables()}
    cells = defaultdict(set)
    for row in tables["generalization"].rows:
        cells[row.heads] = {key.rpartition(" ")[0] for key in row.cells}
    assert cells["Qwen2-VL-2B", "ERCR"] == {"COCO Caption", "GranDf"}
    assert cells["LLaVA1.5-7B", "CAM"] == {"COCO Caption"}
    assert cells["LLaVA1.5-7B", "TAM"] == set()
    assert [row.heads[-1] for row in tables["views"].rows] == ["1", "2", "3"]
    assert {row.heads for row in tables["subword"].rows} == {
        (rule, method) for rule in ("best subword", "first subword") for method in ("TAM", "ERCR")
    }
