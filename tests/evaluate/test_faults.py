"""Samples and methods that fail cost their own rows and nothing else."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from ercr.datasets import Scenes
from ercr.datasets.sample import Samples
from ercr.errors import ErcrError, ImageError
from ercr.evaluate import evaluate
from ercr.evaluate.scores import failures
from ercr.explaining import explainer as explaining

from .conftest import OPTIONS


class Faulty(Samples):
    """Scenes of which one cannot be read and one has no reference."""

    scenes = Scenes(5)

    def __len__(self):
        return 5

    def name(self, index):
        return self.scenes.name(index)

    def sample(self, index):
        if index == 1:
            raise ImageError("It is damaged.")
        sample = self.scenes[index]
        return dataclasses.replace(sample, references=()) if index == 3 else sample


class Failing:
    """An explainer of which some calls fail."""

    def __init__(self, explainer, fails):
        self.inner, self.fails, self.batches = explainer, fails, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def explain_many(self, images, prompts, *, methods, batch_size, **options):
        self.batches.append(len(images))
        self.fails(images, methods)
        return self.inner.explain_many(images, prompts, methods=methods, batch_size=batch_size, **options)


def summary(run):
    rows = run.table().to_pylist()
    return {(row["index"], row["method"]): (row["status"], row["reason"]) for row in rows}


def test_a_bad_sample_becomes_a_row_with_its_reason(explainer, tmp_path):
    run = evaluate(explainer, out=tmp_path / "run", **{**OPTIONS, "dataset": Faulty(), "part_size": 5})
    found = summary(run)
    for method in ("cam", "ercr"):
        assert found[1, method] == ("failed", "input: It is damaged.")
        assert found[3, method] == ("failed", "input: Sample scene-3 has no reference to explain.")
        assert {found[index, method] for index in (0, 2, 4)} == {("ok", None)}
    assert failures(run.table()) == {"input": 2}
    assert [row["sample"] for row in run.table().to_pylist() if row["index"] == 1] == ["scene-1"] * 2
    assert run.log()[0]["failed"] == 2


def test_failed_samples_can_be_tried_again(explainer, tmp_path, undisturbed):
    def fails(images, methods):
        if images[0] == Scenes(3)[0].image:
            raise OSError("the disk was away")

    run = evaluate(Failing(explainer, fails), out=tmp_path / "run", **OPTIONS)
    assert [key for key, (status, _) in summary(run).items() if status == "failed"] == [(0, "cam"), (0, "ercr")]
    kept = run.part_path(1).stat().st_mtime_ns
    evaluate(explainer, out=run.path, retry_failed=True, **OPTIONS)
    assert (run.path / "rows.parquet").read_bytes() == (undisturbed.path / "rows.parquet").read_bytes()
    assert run.part_path(1).stat().st_mtime_ns == kept


def test_one_method_that_fails_leaves_the_others(explainer, tmp_path):
    def fails(images, methods):
        if "ercr" in methods and len(images[0].getbands()) == 3 and images[0] == Scenes(3)[2].image:
            raise RuntimeError("boom at 0x7f00aa")

    found = summary(evaluate(Failing(explainer, fails), out=tmp_path / "run", **OPTIONS))
    assert found[2, "ercr"] == ("failed", "model: RuntimeError: boom at 0x…")
    assert [key for key, (status, _) in found.items() if status == "failed"] == [(2, "ercr")]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("not enough memory: x")])
def test_a_batch_that_needs_too_much_memory_is_halved(explainer, tmp_path, undisturbed, error):
    def fails(images, methods):
        if len(images) > 1:
            raise error

    options = {**OPTIONS, "part_size": 3}
    stub = Failing(explainer, fails)
    run = evaluate(stub, out=tmp_path / "run", **options)
    assert stub.batches == [3, 2, 1, 1, 1]
    assert {status for status, _ in summary(run).values()} == {"ok"}


def test_a_sample_that_is_too_large_alone_gets_its_reason(explainer, tmp_path):
    def fails(images, methods):
        raise torch.OutOfMemoryError("Tried to allocate 20.00 GiB, 3.14 GiB is free")

    run = evaluate(Failing(explainer, fails), out=tmp_path / "run", **{**OPTIONS, "limit": 1})
    assert set(summary(run).values()) == {("failed", "model: not enough memory, even for this sample alone")}


def test_perturbed_pictures_are_halved_too(explainer, tmp_path, monkeypatch):
    batches, trace_samples = [], explaining.trace_samples

    def short_of_memory(adapter, samples, needs, options):
        batches.append(len(samples))
        if len(samples) > 3:
            raise MemoryError
        return trace_samples(adapter, samples, needs, options)

    options = {**OPTIONS, "dataset": "scenes:1", "methods": "cam", "faithfulness": "table"}
    whole = evaluate(explainer, out=tmp_path / "whole", **options).table().to_pylist()
    monkeypatch.setattr(explaining, "trace_samples", short_of_memory)
    short = evaluate(explainer, out=tmp_path / "short", **options).table().to_pylist()
    assert any(row["deleted"] for row in whole)
    assert batches[1] > 3 >= batches[-1]  # after the explanation itself
    for one, other in zip(whole, short, strict=True):
        assert one["deleted"] == (other["deleted"] and pytest.approx(other["deleted"], abs=1e-4))


def test_a_lost_gpu_ends_the_run_and_spoils_nothing(explainer, tmp_path):
    def fails(images, methods):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(ErcrError, match="The GPU failed"):
        evaluate(Failing(explainer, fails), out=tmp_path / "run", **OPTIONS)
    run = evaluate(explainer, out=tmp_path / "run", **OPTIONS)
    assert {status for status, _ in summary(run).values()} == {"ok"}
