"""The method as users run it against the oracle: padded, tiled and enlarged views, odd sizes, default settings."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import ercr
from tests.methods import oracle
from tests.models.test_photo import write_update

PROMPT = "Describe this image."
ANSWER = "a dog and a cat and a bird ."  # the joint normalisation counts words that come again
TINY = ("qwen2_vl", "llava", "llava_pad", "internvl")  # cropped and padded canvases are theirs alone
PACKAGED = ("scenes-qwen2vl", "scenes-llava", "scenes-internvl")


@pytest.fixture(scope="module")
def judged(load):
    """An explainer of a tiny or packaged model, and its oracle."""

    @cache
    def make(name):
        explainer = ercr.Explainer.from_pretrained(name) if "-" in name else load(name, "float64")
        return explainer, oracle.around(explainer)

    return make


def compare(judged, name, picture, atol=1e-4, **settings):
    explainer, judge = judged(name)
    switches = {"views" if key == "kind" else key: value for key, value in settings.items()}
    told = explainer.explain(picture, PROMPT, answer=ANSWER, **switches)
    answer = [token.id for token in told.text_tokens if token.kind == "answer"]
    found = oracle.explain(judge, picture, PROMPT, answer, **settings)
    assert oracle.difference(told, found) < atol
    return told


# scales whose borders cut cells in unequal parts, so that where the half lies matters
CASES = [((131, 77), (0.5, 0.75, 1.0), "pad"), ((57, 113), (0.45, 0.9, 1.0, 1.3), "pad")]


@pytest.mark.parametrize(("size", "scales", "kind"), CASES, ids=str)
@pytest.mark.parametrize("name", TINY)
def test_views_of_every_family_are_read_as_the_equations_say(judged, picture, name, size, scales, kind):
    told = compare(judged, name, picture.resize(size), 1e-5, scales=scales, kind=kind)
    assert told.maps.max() > 0.01


@pytest.mark.parametrize("name", TINY)
def test_words_that_come_again_count_in_the_joint_normalisation(judged, picture, name):
    compare(judged, name, picture.crop((0, 0, 99, 61)), 1e-5, normalize="joint")


def test_a_tower_that_looks_beside_its_cells_middles(tmp_path, picture):
    folder = write_update(tmp_path / "model", tmp_path / "base")
    explainer = ercr.Explainer.from_pretrained(str(folder), dtype="float64")
    compare(lambda _: (explainer, oracle.around(explainer)), "", picture.resize((97, 61)))
    down, right = explainer.adapter.image_inputs(picture)[1].canvas.lean
    assert down
    assert right


@pytest.mark.parametrize("name", PACKAGED)
def test_a_packaged_model_as_it_comes(judged, picture, name):
    compare(judged, name, picture.crop((0, 0, 119, 67)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pad", "interpolate"])
@pytest.mark.parametrize("name", PACKAGED)  # photo-mini takes half a minute a case: the sweep tries it
def test_packaged_models_at_scales_that_shrink_and_enlarge(judged, picture, name, kind):
    compare(judged, name, picture.resize((231, 157)), scales=(0.4, 0.6, 0.8, 1.0, 1.3, 1.6), kind=kind)


def test_cells_are_counted_and_places_are_found_as_on_paper():
    """The oracle itself: a picture of 10 pixels in the middle of 16, in cells of 4."""
    axis = oracle.Axis(16, 4, oracle.Fraction(3), oracle.Fraction(10))
    assert [float(axis.share(i)) for i in range(4)] == [0.25, 1, 1, 0.25]
    assert float(axis.centre(1)) == 0.3
    assert float(axis.at(axis.centre(2))) == 2
    canvas = oracle.Canvas(axis, axis)
    assert canvas.valid().sum() == 4
    ramp = np.arange(16.0).reshape(4, 4)
    assert canvas.reading([(axis.centre(1), axis.centre(2))]) @ ramp.ravel() == ramp[1, 2]
    corner = [(oracle.Fraction(0), oracle.Fraction(0))]
    assert canvas.reading(corner, (range(1, 3), range(1, 3))) @ ramp.ravel() == ramp[1, 1]
    assert not axis.shows(oracle.Fraction(0))
