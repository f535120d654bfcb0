"""What the context residual takes away, recomputed pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ercr.image.geometry import Geometry, Panel
from ercr.metrics.suppression import masses

from .made import pool

GEOMETRY = Geometry((40, 60), (Panel((4, 6), (0.0, 0.0, 60.0, 40.0)),))
TRUTH = np.zeros((40, 60), bool)
TRUTH[5:25, 10:33] = True


def made(count, seed=0):
    rng = np.random.default_rng(seed)
    before = rng.random((count, 4, 6), np.float32)
    return before, before * rng.random((count, 4, 6), np.float32)


def test_masses_inside_and_outside_are_those_of_the_enlarged_maps():
    before, after = (maps[0] for maps in made(1))
    found = masses(before, after, GEOMETRY, TRUTH)
    for name, map_ in (("before", before), ("after", after)):
        large = F.interpolate(torch.tensor(map_)[None, None].double(), (40, 60), mode="bilinear")[0, 0].numpy()
        assert found[f"mass_{name}"] == pytest.approx(map_.sum())
        assert found[f"area_{name}"] == (map_ > 0.5).sum()
        assert found[f"inside_{name}"] == pytest.approx(large[TRUTH].sum() / 100, rel=1e-5)  # 100 pixels in a cell
        assert found[f"outside_{name}"] == pytest.approx(large[~TRUTH].sum() / 100, rel=1e-5)
    without = masses(before, after, GEOMETRY)
    assert {name for name, value in without.items() if value is None} == {
        f"{a}_{b}" for a in ("inside", "outside") for b in ("before", "after")
    }
    schema = pytest.importorskip("ercr.evaluate.schema")
    assert list(found) == list(without) == [name for name, _ in schema.SUPPRESSION]


def test_a_flat_map_lies_inside_as_far_as_the_mask_covers_the_picture():
    found = masses(np.full((4, 6), 0.8), np.full((4, 6), 0.5), GEOMETRY, TRUTH)
    assert found["inside_before"] / found["mass_before"] == pytest.approx(TRUTH.mean())
    assert found["area_before"] == 24
    assert found["area_after"] == 0
    assert found["outside_after"] == pytest.approx(12 * (1 - TRUTH.mean()))


def test_scores_are_ratios_of_sums_by_group():
    before, after = made(9)
    words = [("noun", 18), ("function", None), ("noun", None)] * 3  # a noun of no category is an other word
    pooled = pool(
        {"sample": str(i // 2), "kind": kind, "category": category}
        | masses(before[i], after[i], GEOMETRY, TRUTH if category else None)
        for i, (kind, category) in enumerate(words)
    )
    for start, group in enumerate(("object", "function", "other")):
        old, new = before[start::3], after[start::3]
        assert pooled.value(f"supp_{group}") == pytest.approx(1 - new.sum() / old.sum())
        assert pooled.value(f"area_red_{group}") == pytest.approx(1 - (new > 0.5).sum() / (old > 0.5).sum())
    rows = [masses(before[i], after[i], GEOMETRY, TRUTH) for i in (0, 3, 6)]
    inside, outside = ([sum(r[f"{w}_{t}"] for r in rows) for t in ("before", "after")] for w in ("inside", "outside"))
    assert pooled.value("in_ret_object") == pytest.approx(inside[1] / inside[0])
    assert pooled.value("out_red_object") == pytest.approx(1 - outside[1] / outside[0])
    assert "in_ret_other" not in pooled.names


def test_a_figure_that_is_known_before_or_after_only_is_left_out():
    whole = {f"{what}_{when}": 1.0 for what in ("mass", "area", "inside", "outside") for when in ("before", "after")}
    for missing in whole:
        found = pool([{"sample": "a", "kind": "noun", "category": 18, **whole, missing: None}])
        gone = {"mass": "supp", "area": "area_red", "inside": "in_ret", "outside": "out_red"}[missing.split("_")[0]]
        names = {"supp_object", "area_red_object", "in_ret_object", "out_red_object"} - {f"{gone}_object"}
        assert set(found.names) == (names if missing != "mass_before" else set())  # the row has no masses
