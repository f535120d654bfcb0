"""A cancelled run stops between two blocks and does not change the model."""

from __future__ import annotations

import numpy as np
import pytest

from ercr.errors import Cancelled
from ercr.trace.cancel import each_stopped_when, stopped_when


def hooks(model):
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
        for module in model.modules()
    )


@pytest.mark.parametrize("method", ["ercr", "attention", "grad_rollout", "attn_lrp", "llava_cam"])
def test_stopped_at_any_check_the_model_answers_as_before(load, picture, method):
    explainer, asked = load("qwen2_vl"), []

    def explain():
        return explainer.explain(picture, method=method, max_new_tokens=3)

    before = explain()
    installed = hooks(explainer.adapter.model)  # transformers may keep some of its own
    with stopped_when(lambda: bool(asked.append(0))):
        watched = explain()
    np.testing.assert_array_equal(watched.maps, before.maps)
    total = len(asked)
    assert total >= 2 * len(explainer.adapter.blocks)
    for moment in (1, total // 2, total):
        left = iter(range(moment - 1))
        with pytest.raises(Cancelled), stopped_when(lambda left=left: next(left, None) is None):
            explain()
        assert hooks(explainer.adapter.model) == installed
    np.testing.assert_array_equal(explain().maps, before.maps)


def test_a_stream_stops_at_its_next_step(load, picture):
    stop = []
    stream = load("llava").stream(picture, max_new_tokens=8)
    steps = each_stopped_when(lambda: bool(stop), stream)
    next(steps)
    before = hooks(load("llava").adapter.model)  # transformers may keep some of its own
    next(steps)
    stop.append(True)
    with pytest.raises(Cancelled):
        next(steps)
    assert hooks(load("llava").adapter.model) == before
