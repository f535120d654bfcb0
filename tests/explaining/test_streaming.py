"""A streamed token takes the same time however long the answer is, and little compared with the model's step."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ercr.explaining.streaming import GreedySteps
from ercr.trace.data import TextRows
from ercr.trace.ranked import vocabulary_size

COLUMNS = [field.name for field in fields(TextRows) if field.name != "places"]  # a stream's rows are in order
_MAP = 135  # operations of a map, views of tensors included


class Count(TorchDispatchMode):
    """Counts the operations that reach torch's dispatcher, which take most of the time of a small step."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", ["qwen2_vl", "llava", "internvl"])
def test_a_streamed_step_takes_as_many_operations_late_as_early(family, load, picture, monkeypatch):
    explainer, passes, steps = load(family), [], []
    take = GreedySteps._pass

    def counted(self):
        with Count() as count:
            states = take(self)
        passes.append(count.seen)
        return states

    monkeypatch.setattr(GreedySteps, "_pass", counted)
    never = {"eos_token_id": vocabulary_size(explainer.adapter)}
    stream = iter(explainer.stream(picture, "What is it?", max_new_tokens=40, generation=never))
    while True:
        with Count() as count:
            if next(stream, None) is None:
                break
        steps.append(count.seen)
    assert len(steps) == 40
    assert len(set(steps[2:])) == 1
    assert steps[-1] - passes[-1] <= _MAP


def test_growing_rows_are_joined_when_read_and_stored_once():
    def rows(count):
        columns = torch.arange(count)[:, None].expand(count, 3)
        return TextRows(*(columns + i for i, _ in enumerate(COLUMNS)))

    parts = [rows(count) for count in (4, 1, 1, 1)]
    grown = [parts[0]]
    for part in parts[1:]:
        grown.append(grown[-1].then(part))
        assert len(grown[-1].targets) == sum(map(len, (p.targets for p in parts[: len(grown)])))
    assert grown[-2].targets.data_ptr() == grown[-1].targets.data_ptr()  # a shorter text is the beginning of a longer
    for name in COLUMNS:
        expected = torch.cat([getattr(part, name) for part in parts])
        assert torch.equal(getattr(grown[-1], name), expected)
        assert torch.equal(getattr(grown[-2], name), expected[:-1])
    other = grown[1].then(rows(2))  # the same beginning goes on in two ways
    assert torch.equal(other.targets, torch.cat([p.targets for p in (*parts[:2], rows(2))]))
    assert torch.equal(grown[-1].targets, torch.cat([p.targets for p in parts]))
    with pytest.raises(AttributeError):
        _ = grown[-1].nothing
