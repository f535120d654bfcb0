"""`ercr report` and `ercr reproduce` as a user meets them."""

from __future__ import annotations

import json

import pytest

from ercr import evaluate
from ercr.commands.paper_runs import JOBS, jobs
from ercr.metrics.protocol import Protocol
from tests.report.synthetic import CURVE, make_run


@pytest.fixture
def run(command):
    return command


@pytest.fixture
def folder(tmp_path):
    make_run(tmp_path / "run", ["cam", "tam", "ercr"])
    return tmp_path / "run"


def test_report_prints_each_format(run, folder):
    starts = {"terminal": "Methods ─", "markdown": "# Report", "latex": "\\documentclass", "html": "<!doctype html>"}
    for form, start in starts.items():
        code, out, err = run("report", folder, "--format", form)
        assert code == 0
        assert out.startswith(start)
        assert err == ""
    code, out, _ = run("report", folder, "--json")
    document = json.loads(out)
    assert (code, document["runs"][0]["images"]) == (0, 12)
    assert document == json.loads(run("report", folder, "--format", "json")[1])


def test_report_writes_a_folder(run, folder, tmp_path):
    code, out, err = run("report", folder, "--out", tmp_path / "new" / "out")
    assert (code, out) == (0, "")
    assert "report.html" in err
    assert (tmp_path / "new" / "out" / "tables" / "baselines-qwen2-vl-2b.csv").exists()


def test_an_unfinished_run_is_reported_as_such(run, tmp_path):
    make_run(tmp_path / "half", ["tam", "ercr"], finished=False)
    code, out, _ = run("report", tmp_path / "half", "--json")
    document = json.loads(out)
    assert code == 0
    assert (document["runs"][0]["finished"], document["runs"][0]["images"]) == (False, 6)
    assert "not finished: 6 of 12 images" in document["warnings"][0]
    assert "6 images of 12, unfinished" in document["sections"][0]["tables"][0]["facts"][0]


def test_runs_of_a_model_in_other_precision_are_pointed_out(run, tmp_path):
    for name, dtype in (("one", "bfloat16"), ("other", "float32")):
        make_run(tmp_path / name, ["cam", "attention"], dtype=dtype)
    document = json.loads(run("report", tmp_path / "one", tmp_path / "other", "--json")[1])
    assert "dtype bfloat16 and float32" in document["warnings"][0]


def test_the_papers_tables_come_when_asked_for(run, tmp_path):
    make_run(tmp_path / "run", ["tam", "ercr"], model="scenes-qwen2vl", dataset="scenes:12")
    plain, asked = (run("report", tmp_path / "run", *more, "--format", "markdown")[1] for more in ((), ("--paper",)))
    assert "paper" not in plain.lower().replace("paper.json", "")
    assert "44.45" in asked


def test_what_cannot_be_reported_is_said_in_one_sentence(run, folder, tmp_path):
    make_run(tmp_path / "clean", ["cam"], protocol="clean")
    make_run(tmp_path / "torn", ["cam"])
    whole = (tmp_path / "torn" / "rows.parquet").read_bytes()
    (tmp_path / "torn" / "rows.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "settings.json").write_text('{"some": "editor"}')
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "benchmark.json").write_text("[1, 2]")
    mistakes = {
        "There is no folder": [tmp_path / "nowhere"],
        "has no settings.json": [tmp_path],
        "is not the settings file of an evaluation": [tmp_path / "foreign"],
        "is damaged": [tmp_path / "torn"],
        "report them separately": [folder, tmp_path / "clean"],
        "was not written by `ercr benchmark`": [tmp_path / "bench"],
        "No run has the method 'tan'": [folder, "--reference", "tan"],
    }
    for sentence, arguments in mistakes.items():
        code, out, err = run("report", *arguments)
        assert (code, out) == (2, ""), arguments
        assert sentence in " ".join(err.split())
        assert err.count("error:") == 1


def test_a_benchmark_can_be_reported_alone(run, tmp_path):
    rows = [{"method": m, "tflops": 3.6, "seconds_per_sample": 1.7} for m in ("tam", "ercr:views=1", "ercr")]
    content = {"model": "Qwen/Qwen2-VL-2B-Instruct", "device": "NVIDIA H200", "rows": rows}
    (tmp_path / "benchmark.json").write_text(json.dumps(content))
    code, out, _ = run("report", tmp_path, "--json")
    table = json.loads(out)["sections"][0]["tables"][0]
    assert code == 0
    assert [row["heads"][0] for row in table["rows"]] == ["TAM", "PCR only", "ERCR"]
    assert table["rows"][1]["figures"]["seconds_per_sample"] == {"value": 1.7, "paper": 1.54}


@pytest.fixture
def evaluated(monkeypatch):
    """Evaluations leave made-up rows; what was asked for is kept."""
    asked = []

    def pretend(model, dataset, methods, out, *, protocol, **options):
        asked.append({"model": model, "dataset": dataset, "methods": methods, "protocol": protocol, **options})
        budgets = CURVE if options.get("faithfulness") == "curve" else None
        suppression = options.get("suppression", False)
        if not out.exists():
            make_run(out, methods, model, dataset, protocol=protocol, budgets=budgets, suppression=suppression)

    monkeypatch.setattr(evaluate, "evaluate", pretend)
    monkeypatch.setattr("ercr.commands.paper_runs._model", lambda name, *_: name)
    return asked


@pytest.mark.parametrize("table", [name for name in JOBS if name != "efficiency"])
def test_every_table_is_run_and_shown(run, evaluated, tmp_path, table):
    models = ("--model", "scenes-qwen2vl", "--model", "scenes-llava") if table == "generalization" else ()
    code, out, err = run("reproduce", table, *models, "--limit", 3, "--out", tmp_path, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert [section["key"] for section in document["sections"]] == [table]
    assert document["not_measured"] == []
    assert all(call["limit"] == 3 and call["dataset"] == "scenes:100" for call in evaluated)
    assert (tmp_path / "report.html").exists()
    assert len(list((tmp_path / "runs").iterdir())) == len(evaluated)


def test_all_tables_share_runs():
    joined = jobs("all")
    assert len(joined) == 5
    plain = next(job for job in joined if not job.suffix)
    assert {"grad_rollout", "ercr:views=5", "ercr:scales=0.25/0.625/1", "ercr:views=1,context=none"} <= {*plain.methods}
    assert len(plain.methods) == len(set(plain.methods))


def test_subword_rules_are_changes_of_the_protocol_asked_for(run, evaluated, tmp_path):
    code, _, err = run("reproduce", "subword", "--protocol", "clean", "--out", tmp_path, "--json")
    assert code == 0, err
    rules = [Protocol.parse(call["protocol"]) for call in evaluated]
    assert [(rule.base, rule.subword) for rule in rules] == [("clean", r) for r in ("max", "mean", "first")]
    assert evaluated[0]["methods"] == ["tam", "ercr"]
    assert [job.methods for job in jobs("subword")] == [("tam:compat=on", "ercr")] * 3


def test_reproduce_says_what_there_is(run):
    code, out, _ = run("reproduce", "--list", "--json")
    assert code == 0
    assert [row["table"] for row in json.loads(out)] == list(JOBS)
    assert "ablation" in run("reproduce", "--list")[1]
    code, _, err = run("reproduce", "ablatoin")
    assert code == 2
    assert "Did you mean 'ablation'" in err
    assert run("reproduce")[0] == 2


@pytest.mark.slow
def test_a_table_is_measured_on_a_packaged_model(run, tmp_path):
    code, out, err = run(
        "reproduce", "views", "--data", "scenes:3", "--max-new-tokens", 24, "--out", tmp_path, "--json"
    )
    assert code == 0, err
    table = json.loads(out)["sections"][0]["tables"][0]
    assert [row["heads"][-1] for row in table["rows"]] == ["1", "2", "3", "4", "5"]
    assert all(row["figures"]["Scenes f1_iou"]["value"] > 10 for row in table["rows"])
