"""The same rows from workers of a Ray cluster, also when one of them is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ercr.errors import InputError
from ercr.evaluate import evaluate
from ercr.evaluate.cluster import _ray

from .conftest import OPTIONS


def workers_of(ancestor):
    """Ids of the worker processes that descend from a process."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"_PartWorker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue

    def descends(process):
        return process == ancestor or (process in parents and descends(parents[process]))

    return [process for process in found if descends(process)]


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_gives_the_rows_of_one_process(checkpoint, tmp_path):
    pytest.importorskip("ray")
    options = {**OPTIONS, "model": str(checkpoint("qwen2_vl")), "dataset": "scenes:6", "part_size": 1}
    alone = evaluate(out=tmp_path / "alone", **options)
    killed = []

    def kill(part):
        if not killed:
            killed.extend(workers_of(os.getpid())[:1])
            os.kill(killed[0], signal.SIGKILL)

    spread = evaluate(out=tmp_path / "spread", engine="ray", workers=2, progress=kill, **options)
    assert len(killed) == 1
    assert (spread.path / "rows.parquet").read_bytes() == (alone.path / "rows.parquet").read_bytes()
    assert sorted(entry["part"] for entry in spread.log()) == list(range(6))
    assert spread.settings == alone.settings


def test_workers_need_names(explainer, tmp_path):
    with pytest.raises(InputError, match="by name"):
        evaluate(explainer, out=tmp_path / "run", engine="ray", **OPTIONS)


def test_without_ray_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install '.\[ray\]'"):
        _ray()
