"""Captured passes: their number is bounded, and they go with their cache. The captures are mocked; no GPU."""

from __future__ import annotations

import torch

from ercr.trace import graphs
from ercr.trace.graphs import Graphs


class Replayed:
    def replay(self):
        pass


def kept(monkeypatch, most=2, remembered=3):
    monkeypatch.setattr(graphs, "_MAX_CAPTURED", most)
    monkeypatch.setattr(graphs, "_MAX_SEEN", remembered)
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


def test_a_pass_is_captured_when_it_comes_again_and_few_are_kept(monkeypatch):
    made, captures = kept(monkeypatch)
    for turn, count in ((1, 0), (2, 1), (3, 1)):
        assert run(made, "a").tolist() == [2, 2]
        assert len(captures) == count, turn
    for key in "bbcc":
        run(made, key)
    assert set(made._captured) == {"b", "c"}
    for number in range(50):
        run(made, number)
    assert len(made._seen) == 3


def test_passes_over_a_cache_are_dropped_with_it(monkeypatch):
    made, _ = kept(monkeypatch, most=9)
    cache, other = object(), object()
    for key, held in (("one", cache), ("two", cache), ("three", other)):
        for _ in range(2):
            run(made, key, keep=("batch", held))
    made.forget(cache)
    assert set(made._captured) == {"three"}
