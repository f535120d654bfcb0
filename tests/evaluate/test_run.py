"""A run's folder after kills, damage, and changed minds."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import signal

import pytest
from filelock import FileLock

from ercr.errors import FileFormatError, InputError, OutputError
from ercr.evaluate import Run, evaluate

from .conftest import OPTIONS


def rows(run):
    return (run.path / "rows.parquet").read_bytes()


def evaluate_and_die(explainer, out, moment):
    """Evaluate until the given file operation, then be killed."""
    counter = itertools.count()

    def mortal(function):
        def call(*arguments, **options):
            if next(counter) == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for name in ("fsync", "chmod", "replace", "link"):
        setattr(os, name, mortal(getattr(os, name)))
    evaluate(explainer, out=out, **OPTIONS)


def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(explainer, undisturbed, tmp_path):
    """Kill before every file operation in turn: of the settings, of each part, of the end."""
    fork = multiprocessing.get_context("fork")
    for moment in itertools.count():
        out = tmp_path / str(moment)
        child = fork.Process(target=evaluate_and_die, args=(explainer, out, moment))
        child.start()
        child.join(60)
        run = evaluate(explainer, out=out, **OPTIONS)
        assert rows(run) == rows(undisturbed)
        left = sorted(path.name for path in out.rglob(".*") if path.name != ".lock")
        assert left == []
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
    assert moment == 2 * (1 + 2 * 2 + 2)  # settings; the rows and the record of two parts; those of all rows
    assert [entry["part"] for entry in run.log()] == [0, 1]


def test_every_sample_has_its_rows_once(undisturbed):
    table = undisturbed.table().to_pylist()
    keys = [(row["index"], row["method"], row["token"]) for row in table]
    assert len(set(keys)) == len(keys)
    assert {(row["index"], row["method"]) for row in table} == set(itertools.product(range(3), ("cam", "ercr")))
    assert keys == sorted(keys, key=lambda key: (key[0], ("cam", "ercr").index(key[1]), key[2]))


def test_parts_that_are_lost_or_damaged_are_computed_again(explainer, undisturbed, tmp_path):
    run = evaluate(explainer, out=tmp_path / "run", **OPTIONS)
    kept = run.part_path(0).stat().st_mtime_ns
    run.part_path(1).write_bytes(run.part_path(1).read_bytes()[:-20])
    (run.path / "log.jsonl").open("a").write('{"part": 7, "sam')
    told, said = [], []
    again = evaluate(explainer, out=run.path, begin=lambda *counts: told.append(counts), say=said.append, **OPTIONS)
    assert rows(again) == rows(undisturbed)
    assert told == [(3, 2)]
    assert said == [f"{run.path}: parts 1 are damaged and are computed again."]
    assert again.part_path(0).stat().st_mtime_ns == kept
    assert [entry["part"] for entry in again.log()] == [0, 1, 1]


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def swap(one, other):
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda run: flip(run.path / "rows.parquet", 500), "rows.parquet did not match the parts"),
        (lambda run: (run.path / "rows.parquet").write_bytes(b""), "rows.parquet did not match the parts"),
        (lambda run: (run.path / "rows.json").unlink(), "rows.parquet did not match the parts"),
        (lambda run: flip(run.part_path(0), 300), "parts 0 are damaged"),
        (lambda run: flip(run.part_path(0).with_suffix(".json"), 20), "parts 0 are damaged"),
        (lambda run: swap(run.part_path(0), run.part_path(1)), "parts 0, 1 are damaged"),
    ],
)
def test_nothing_damaged_enters_the_rows_or_a_report(explainer, undisturbed, tmp_path, damage, told):
    run, said = Run(shutil.copytree(undisturbed.path, tmp_path / "run")), []
    damage(run)
    if "rows" in told:
        with pytest.raises(FileFormatError, match="is damaged: run the same `ercr evaluate` again"):
            run.table()
    evaluate(explainer, out=run.path, say=said.append, **OPTIONS)
    assert rows(run) == rows(undisturbed)
    assert len(said) == 1
    assert told in said[0]


def test_both_files_of_swapped_parts_are_noticed_in_an_unfinished_run(undisturbed, tmp_path):
    run = Run(shutil.copytree(undisturbed.path, tmp_path / "run"))
    (run.path / "rows.parquet").unlink()
    assert run.table().num_rows == undisturbed.table().num_rows
    swap(run.part_path(0), run.part_path(1))
    swap(run.part_path(0).with_suffix(".json"), run.part_path(1).with_suffix(".json"))
    with pytest.raises(FileFormatError, match="is damaged"):
        run.table()


def test_a_part_in_the_place_of_all_rows_is_noticed(undisturbed, tmp_path):
    run = Run(shutil.copytree(undisturbed.path, tmp_path / "run"))
    for suffix in (".parquet", ".json"):
        shutil.copy(run.part_path(1).with_suffix(suffix), (run.path / "rows").with_suffix(suffix))
    with pytest.raises(FileFormatError, match="is damaged"):
        run.table()


def test_damaged_settings_are_refused_and_so_are_those_without_checksums(explainer, undisturbed, tmp_path):
    run = Run(shutil.copytree(undisturbed.path, tmp_path / "run"))
    path = run.path / "settings.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "threads": 7}))
    for use in (run.table, lambda: evaluate(explainer, out=run.path, **OPTIONS)):
        with pytest.raises(FileFormatError, match="wrong checksum"):
            use()
    del settings["checksum"]
    path.write_text(json.dumps({**settings, "format": 1}))
    for record in run.path.rglob("*.json"):
        if record != path:
            record.unlink()
    assert run.table() == undisturbed.table()
    assert not run.checked
    with pytest.raises(InputError, match="earlier version, without checksums"):
        evaluate(explainer, out=run.path, **OPTIONS)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"methods": "cam,tam"}, "methods was cam, ercr, is now cam, tam"),
        ({"protocol": "tam"}, "protocol.preset was clean, is now tam"),
        ({"dataset": "scenes:3@7"}, "dataset.fingerprint was"),
        ({"limit": 2}, "dataset.samples was 3, is now 2"),
        ({"dtype": "bfloat16"}, "model.dtype was float32, is now bfloat16"),
        ({"maps": True}, "maps was False, is now True"),
    ],
)
def test_changed_settings_never_mix_with_old_rows(explainer, undisturbed, change, told):
    with pytest.raises(InputError, match="was written with other settings") as caught:
        evaluate(explainer, out=undisturbed.path, **{**OPTIONS, **change})
    assert told in str(caught.value)


def test_another_model_under_the_same_name_is_noticed(explainer, load, undisturbed, tmp_path):
    import torch

    run = evaluate(explainer, out=tmp_path / "run", **OPTIONS)
    run.part_path(1).unlink()
    norm = explainer.adapter.final_norm.weight
    with torch.no_grad():
        norm[0] += 1
    try:
        with pytest.raises(InputError, match=r"model\.weights was"):
            evaluate(explainer, out=run.path, **OPTIONS)
    finally:
        with torch.no_grad():
            norm[0] -= 1


def test_batch_size_is_no_setting_and_a_finished_run_needs_no_model(undisturbed, tmp_path):
    name = undisturbed.settings["model"]["name"]
    before = (undisturbed.path / "rows.parquet").stat().st_mtime_ns
    evaluate(name, out=undisturbed.path, batch_size=3, **OPTIONS)
    assert (undisturbed.path / "rows.parquet").stat().st_mtime_ns == before


def test_only_one_process_writes_a_run(explainer, undisturbed):
    with FileLock(undisturbed.path / ".lock"), pytest.raises(OutputError, match="Another process is writing"):
        evaluate(explainer, out=undisturbed.path, **OPTIONS)
    evaluate(explainer, out=undisturbed.path, **OPTIONS)


@pytest.mark.parametrize("name", ["thesis.tex", ".env.local", ".rows.parquet.bak", "rows.parquet", "parts/mine.txt"])
def test_a_folder_with_other_things_in_it_is_left_alone(explainer, tmp_path, name):
    (tmp_path / "parts").mkdir()
    (tmp_path / name).write_text("x")
    with pytest.raises(OutputError, match="holds other files") as caught:
        evaluate(explainer, out=tmp_path, **OPTIONS)
    assert (tmp_path / name).name in str(caught.value)
    with pytest.raises(OutputError):
        evaluate(explainer, out=tmp_path / name, **OPTIONS)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == sorted({"parts", name})
    assert (tmp_path / name).read_text() == "x"


def test_a_refused_run_removes_nothing(explainer, undisturbed, tmp_path):
    run = Run(shutil.copytree(undisturbed.path, tmp_path / "run"))
    left = run.path / ".rows.parquet.0123456789abcdef.ercr"  # of a killed process
    left.write_text("half")
    with pytest.raises(InputError, match="other settings"):
        evaluate(explainer, out=run.path, **{**OPTIONS, "limit": 2})
    assert left.exists()
    mine = run.path / ".env.local"
    mine.write_text("x")
    with pytest.raises(OutputError, match=r"holds other files \(.env.local\)"):
        evaluate(explainer, out=run.path, **OPTIONS)
    assert (left.exists(), mine.read_text()) == (True, "x")
    mine.unlink()
    evaluate(explainer, out=run.path, **OPTIONS)
    assert not left.exists()


def test_a_lock_that_is_not_a_runs_is_left_alone(explainer, tmp_path):
    (tmp_path / ".lock").write_text("mine")
    with pytest.raises(OutputError, match="not the lock of a run"):
        evaluate(explainer, out=tmp_path, **OPTIONS)
    assert (tmp_path / ".lock").read_text() == "mine"


def test_a_run_opens_again(undisturbed, tmp_path):
    run = Run.open(undisturbed.path)
    assert run.complete
    assert run.settings == json.loads((undisturbed.path / "settings.json").read_text())
    assert run.settings["dataset"]["samples"] == 3
    assert set(run.scores()) == {"cam", "ercr"}
    assert 0 < run.scores()["cam"]["func_iou"]["value"] <= 1
    with pytest.raises(InputError, match=r"no settings\.json"):
        Run.open(tmp_path)
