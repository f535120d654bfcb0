"""One rule for the default model, the same in the library and in every command."""

from __future__ import annotations

import warnings

import pytest

import ercr
from ercr import zoo
from ercr.commands.paper_runs import plan
from ercr.errors import InputError
from ercr.zoo.defaults import default_model, model_for_dataset, offered_models

PHOTOS, SCENES, CLIPS = "photo-mini", "scenes-qwen2vl", "clips-qwen2vl"


@pytest.fixture(params=[True, False], ids=["at hand", "not at hand"])
def at_hand(request, monkeypatch):
    """Whether the language model of the model for photographs can be loaded."""
    monkeypatch.setattr(zoo, "photo_model", lambda: PHOTOS if request.param else None)
    return request.param


@pytest.fixture
def loaded(monkeypatch, load):
    """The names of models that are loaded; a tiny one stands in for each."""
    names, tiny = [], load("qwen2_vl").adapter

    def instead(path, revision, generic=False, **options):
        names.append(path.rsplit("/", 1)[-1])
        return tiny

    monkeypatch.setattr("ercr.explaining.explainer.load_adapter", instead)
    return names


def test_drawn_scenes_and_all_else_have_a_model_each(at_hand):
    usual = PHOTOS if at_hand else SCENES
    assert default_model().name == usual
    assert default_model(drawn=True).name == SCENES
    assert model_for_dataset("scenes:20").name == SCENES
    assert {model_for_dataset(spec).name for spec in ("pairs:3", "moving")} == {CLIPS}
    assert {model_for_dataset(spec).name for spec in ("coco:x", "grandf:scenes", "hf:x")} == {usual}
    assert offered_models() == ([PHOTOS, SCENES] if at_hand else [SCENES])
    assert "pip install" in default_model().sentence or at_hand


def test_the_library_follows_it_and_warns_where_photographs_are_not_known(at_hand, loaded):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert ercr.Explainer.from_pretrained().name == (PHOTOS if at_hand else SCENES)
    said = [str(each.message) for each in heard if issubclass(each.category, UserWarning)]
    assert len(said) == (0 if at_hand else 1)
    assert all("drawn scenes only" in text for text in said)


def test_commands_follow_it_and_say_so(at_hand, loaded, command, photo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    usual = PHOTOS if at_hand else SCENES
    asked = ("--answer", "a dog", "--max-new-tokens", 2)
    for arguments, expected in [
        (("explain", photo, *asked), usual),
        (("figure", "tokens", photo, *asked, "--dpi", 40), usual),
        (("figure", "tokens", *asked, "--dpi", 40), SCENES),
    ]:
        loaded.clear()
        code, _, err = command(*arguments)
        assert (code, loaded) == (0, [expected]), err
        assert f"so {expected} is used" in " ".join(err.split())


def test_an_evaluation_takes_the_model_of_its_dataset(at_hand, command, monkeypatch):
    def begun(model, dataset, *_, begin, **options):
        begin(1, 0)
        raise InputError(f"{dataset} with {model}")

    monkeypatch.setattr("ercr.evaluate.evaluate", begun)
    for spec, expected in (("coco:x", PHOTOS if at_hand else SCENES), ("scenes:1", SCENES)):
        err = " ".join(command("evaluate", "--dataset", spec, "--out", "run")[2].split())
        assert f"so {expected} is used" in err
        assert f"{spec} with {expected}" in err


def test_tables_of_photographs_are_not_measured_with_a_model_for_scenes(at_hand, tmp_path):
    pairs = {(model, data) for model, data, *_ in plan("ablation", (), ("coco:x", "scenes:2"), tmp_path, "tam")}
    assert pairs == {(PHOTOS if at_hand else SCENES, "coco:x"), (SCENES, "scenes:2")}
