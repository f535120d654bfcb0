"""`ercr evaluate` as a user meets it."""

from __future__ import annotations

import json

import pytest

from ercr.evaluate import worker


@pytest.fixture
def run(command, checkpoint, tmp_path):
    """Run `ercr evaluate …` on two scenes."""

    def call(*arguments, out="run"):
        model = ("--model", checkpoint("qwen2_vl")) if "--model" not in arguments else ()
        fixed = ("--dataset", "scenes:2", "--out", tmp_path / out, "--answers", "references", *model)
        return command("evaluate", *fixed, *arguments)

    return call


def test_a_table_for_people_and_one_document_for_programs(run):
    code, out, err = run("--methods", "cam,ercr:context=tam,views=1", "--protocol", "clean")
    assert code == 0
    assert "Func-IoU" in out
    assert "ercr:context=tam,views=1" in out
    assert "protocol clean, words tagged by" in err
    code, out, _ = run("--methods", "cam", "--methods", "ercr:context=tam,views=1", "--protocol", "clean", "--json")
    document = json.loads(out)
    assert code == 0
    assert list(document["figures"]) == ["cam", "ercr:context=tam,views=1"]
    assert document["failures"] == {}
    assert document["dataset"]["samples"] == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--methods", "camm"), "Did you mean 'cam'"),
        (("--methods", "cam", "--batch-size", "0"), "--batch-size must be auto or a whole number"),
        (("--methods", "cam", "--protocol", "tamm"), "no protocol 'tamm'"),
        (("--methods", "cam", "--limit", "0"), "limit must be at least 1"),
        (("--methods", "cam", "--dtype", "int8"), "dtype must be one of"),
        (("--methods", "cam", "--model", "nobody"), "neither a packaged model"),
        (("--methods", "cam", "--device", "cuda"), "no CUDA device"),
    ],
)
def test_mistakes_exit_with_two_and_one_sentence(run, arguments, told, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, out, err = run(*arguments, out="mistake")
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())


def test_an_interrupted_run_says_how_to_go_on(run, monkeypatch):
    finished, part = [], worker.Worker.part

    def interrupted(self, number, following=None):
        if finished:
            raise KeyboardInterrupt
        finished.append(number)
        return part(self, number, following)

    arguments = ("--methods", "cam", "--part-size", "1")
    with monkeypatch.context() as patch:
        patch.setattr(worker.Worker, "part", interrupted)
        code, _, err = run(*arguments)
    assert code == 130
    assert "1 of 2 samples are kept" in err
    assert "run the same command again" in err
    code, _, err = run(*arguments)
    assert code == 0
    assert "1 of 2 samples were evaluated before" in err
