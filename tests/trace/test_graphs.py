"""Captured passes: their number is bounded, and they go with their cache. The captures are mocked; no GPU."""

from __future__ import annotations

import torch

from ercr.trace import graphs
from ercr.trace.graphs import Graphs


class Replayed:
    def replay(self):
        pass


def kept(monkeypatch, most=2):
    monkeypatch.setattr(graphs, "_MAX_CAPTURED", most)
    made = Graphs(torch.device("cpu"))
    made.active = True
    captures = []

    def capture(function):
        function()
        captures.append(1)
        return Replayed()

    monkeypatch.setattr(made, "capture", capture)
    return made, captures


def run(made, key, keep=()):
    return made.run(key, {"x": torch.ones(2)}, lambda x: 2 * x, keep=keep)


def test_a_pass_is_captured_once_and_few_are_kept(monkeypatch):
    made, captures = kept(monkeypatch)
    for _ in range(3):
        assert run(made, "a").tolist() == [2, 2]
        assert len(captures) == 1
    for key in "bbcc":
        run(made, key)
    assert set(made._captured) == {"b", "c"}
    made.clear()
    assert not made._captured
