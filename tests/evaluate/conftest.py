"""A tiny model, a few scenes, and a run of them that nothing disturbed."""

from __future__ import annotations

import pytest

from ercr.evaluate import evaluate

# the words are the scenes' captions, because a random model says nothing that could be scored
OPTIONS = {"dataset": "scenes:3", "methods": "cam,ercr", "part_size": 2, "answers": "references", "protocol": "clean"}


@pytest.fixture(scope="session")
def explainer(load):
    return load("qwen2_vl")


@pytest.fixture(scope="session")
def undisturbed(explainer, tmp_path_factory):
    return evaluate(explainer, out=tmp_path_factory.mktemp("runs") / "undisturbed", **OPTIONS)
