"""The task `grounding`: its rows say what `check` says, signals are what they are called, runs resume byte for byte."""

from __future__ import annotations

import hashlib
import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from ercr.datasets.registry import open_dataset
from ercr.datasets.scenes import Scenes
from ercr.errors import InputError
from ercr.evaluate import Run, evaluate
from ercr.evaluate.grounding_scores import Words, groups, scores

OPTIONS = {
    "dataset": "scenes:3@7000",
    "methods": [],
    "task": "grounding",
    "part_size": 2,
    "names": 1,
    "max_new_tokens": 8,
}


@pytest.fixture(scope="module")
def run(explainer, tmp_path_factory):
    return evaluate(explainer, out=tmp_path_factory.mktemp("grounding") / "run", **OPTIONS)


@pytest.fixture(scope="module")
def rows(run):
    return run.table().to_pylist()


def test_rows_say_what_check_says(explainer, rows):
    dataset = open_dataset(OPTIONS["dataset"])
    found = {(row["index"], row["source"], row["drawn"], row["word"]): row for row in rows}
    given = [row for row in rows if row["source"] == "given" and row["index"] == 1]
    assert {row["drawn"] for row in given} == {"caption", "other caption"}
    sample = dataset[1]
    for answer in sorted({row["answer"] for row in given}):
        checked = explainer.check(sample.image, sample.prompt, answer=answer, without=("text", "grey"))
        own = [row for row in given if row["answer"] == answer]
        for row in own:
            words = checked.words[row["word"] : row["word"] + len(row["text"].split())]
            assert " ".join(word.text for word in words) == row["text"]
            grounding = words[0].grounding
            if len(words) == 1:
                assert row["seen"] == pytest.approx(grounding.seen, abs=1e-5)
            # a name of several words is read as one long word
            logs = sum(np.log(word.grounding.probability) for word in words)
            assert row["log_probability"] == pytest.approx(logs, abs=1e-4)
            for kind in ("text", "grey"):
                effect = sum(word.grounding.image_effect[kind] for word in words)
                assert row[f"effect_{kind}"] == pytest.approx(effect, abs=1e-4)
            assert row["lens_probability"] == pytest.approx(grounding.lens_probability, rel=1e-3)
            assert row["focus"] == pytest.approx(grounding.focus, abs=1e-4)
            assert row["ercr_strength"] == pytest.approx(words[0].strength, rel=1e-3, abs=1e-5)
            assert row["internal_confidence"] >= row["lens_probability"] - 1e-6
            assert 0 <= row["attention_4"] <= 1
            assert -1 <= row["glsim"] <= 1
    assert len(found) == len(
        {(r["index"], r["source"], r["drawn"], r["word"], r["text"]) for r in rows if r["source"] != "name"}
    ) + sum(1 for key in found if key[1] == "name")


def test_names_are_asked_about_in_pairs_and_judged_by_masks(rows):
    dataset = open_dataset(OPTIONS["dataset"])
    for index in range(3):
        sample = dataset[index]
        there = {sample.categories[int(value)] for value in np.unique(sample.labels) if value}
        names = [row for row in rows if row["source"] == "name" and row["index"] == index]
        assert sorted(row["drawn"] for row in names) == ["popular", "present", "random", "together"]
        for row in names:
            assert row["there"] == (row["drawn"] == "present") == (row["text"] in there)
            if row["there"]:
                number = next(id_ for id_, name in sample.categories.items() if name == row["text"])
                assert row["area"] == pytest.approx((sample.labels == number).mean())
            assert row["answer"] == f"{'An' if row['text'][0] in 'aeiou' else 'A'} {row['text']}."


def test_a_run_continues_with_the_same_bytes_and_refuses_other_settings(explainer, run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    for file in (copy / "rows.parquet", copy / "rows.json", copy / "parts/part-000001.parquet"):
        file.unlink()
    again = evaluate(explainer, out=copy, **OPTIONS)
    assert (copy / "rows.parquet").read_bytes() == (run.path / "rows.parquet").read_bytes()
    assert again.task == "grounding"
    with pytest.raises(InputError, match="names was 1, is now 2"):
        evaluate(explainer, out=copy, **{**OPTIONS, "names": 2})
    with pytest.raises(InputError, match="has no methods"):
        evaluate(explainer, out=tmp_path / "x", **{**OPTIONS, "methods": "cam"})
    with pytest.raises(InputError, match="scores no maps"):
        evaluate(explainer, out=tmp_path / "x", **{**OPTIONS, "maps": True})


def test_a_run_of_an_earlier_version_that_lacks_columns_is_read(run, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(run.path, older)
    file = older / "rows.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["area", "chosen"]), file)
    about = json.loads((older / "rows.json").read_text())
    about["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (older / "rows.json").write_text(json.dumps(about))
    found = Run(older).table()
    assert found.schema == run.table().schema
    assert found["chosen"].null_count == len(found)
    assert found["seen"] == run.table()["seen"]
    assert scores(found)["names"]["seen"] == scores(run.table())["names"]["seen"]


def test_signals_that_need_no_further_pass_are_the_same_alone(explainer, rows, tmp_path):
    own = evaluate(explainer, out=tmp_path / "own", **{**OPTIONS, "signals": "own"}).table().to_pylist()
    for name in ("seen", "glsim", "entropy", "attention_4"):
        assert [row[name] for row in own] == pytest.approx([row[name] for row in rows], abs=1e-5)
    assert {row["effect_grey"] for row in own} == {row["internal_confidence"] for row in own} == {None}


def test_scores_are_those_of_the_groups(run):
    table = run.table()
    found, words = scores(table), Words.of(table)
    assert {"names", "names, absent ones random", "verdicts"} <= set(found)
    from sklearn.metrics import roc_auc_score

    names = groups(words)["names"]
    there = np.array([bool(value) for value in words["there"][names]])
    for signal, sign in (("seen", 1), ("entropy", -1), ("lens_rank", -1), ("effect_grey", 1)):
        expected = roc_auc_score(there, sign * np.asarray(words[signal], float)[names])
        assert found["names"][signal]["auroc"]["value"] == pytest.approx(expected)
    assert found["names"]["seen"]["calibration_error"]["value"] <= 1
    assert 0 <= found["verdicts"]["seen"]["absent_names_seen"]["value"] <= 1
    assert json.loads(json.dumps(Run(run.path).scores())) == found


def test_a_sample_that_fails_costs_its_own_rows_only(explainer, tmp_path):
    class Damaged(Scenes):
        def sample(self, index):
            if index == 1:
                raise OSError("the file is damaged")
            return super().sample(index)

    options = {key: value for key, value in OPTIONS.items() if key != "dataset"}
    rows = evaluate(explainer, Damaged(3, 7000), out=tmp_path / "run", **options).table().to_pylist()
    assert {row["index"] for row in rows if row["status"] == "ok"} == {0, 2}
    assert [(row["index"], row["reason"]) for row in rows if row["status"] == "failed"] == [
        (1, "input: OSError: the file is damaged")
    ]
