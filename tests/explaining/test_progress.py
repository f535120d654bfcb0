"""Progress of a long call: reported after each batch, shown in a terminal, never more than the total."""

from __future__ import annotations

import io
import sys

import pytest
from PIL import Image

from ercr.commands.evaluate import Bar
from ercr.evaluate import Done, evaluate
from ercr.explaining.explainer import Explainer


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def explainer(load):
    return load("qwen2_vl")


def test_every_picture_is_reported(explainer):
    pictures = [Image.new("RGB", (56, 56), colour) for colour in ("red", "green", "blue")]
    counts: list[int] = []
    options = {"methods": ["cam"], "answers": ["a"] * 3, "batch_size": 2}
    explainer.explain_many(pictures, done=counts.append, **options)
    assert sum(counts) == 3


def test_a_bar_is_shown_in_a_terminal_only(explainer, monkeypatch):
    pictures = [Image.new("RGB", (56, 56), colour) for colour in ("red", "green")]

    def shown(stream, **options):
        monkeypatch.setattr(sys, "stderr", stream)
        explainer.explain_batch(pictures, answers=["a", "b"], method="cam", **options)
        return stream.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    assert "2/2" in shown(Terminal())
    assert shown(Terminal(), progress=False) == ""
    assert shown(io.StringIO()) == ""


def test_an_evaluation_reports_each_sample_once_when_batches_are_repeated(explainer, tmp_path, monkeypatch):
    whole, calls = Explainer.explain_many, []

    def failing(self, images, *arguments, **options):
        found = whole(self, images, *arguments, **options)
        calls.append(len(images))
        if len(images) > 1:
            raise RuntimeError("only one at a time")
        return found

    monkeypatch.setattr(Explainer, "explain_many", failing)
    steps: list[float] = []
    options = {"dataset": "scenes:3", "part_size": 3, "answers": "references", "protocol": "clean"}
    evaluate(explainer, methods="cam", out=tmp_path / "run", moved=steps.append, **options)
    assert steps[0] == 0  # the model is loaded
    assert max(calls) == 3
    assert sum(steps) == pytest.approx(3)


def test_the_bar_counts_samples_of_unfinished_parts_and_of_other_workers():
    bar = Bar()
    bar.begin(10, 4)
    bar.move(0)
    bar.move(0.9 * 2)
    task = bar.progress.tasks[0]
    assert (task.total, task.completed) == (10, pytest.approx(5.8))
    bar.advance(Done(0, 3, 1, 1.0))
    assert (task.completed, bar.done, task.fields["failed"]) == (7, 7, "[red]1 failed[/red]")
