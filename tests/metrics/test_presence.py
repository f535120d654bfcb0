"""Which named things are in a picture, by masks and captions, and which names a picture is asked about."""

from __future__ import annotations

import numpy as np
import pytest

from ercr.metrics.language import english
from ercr.metrics.presence import NAMELESS, Names, kinds, scene, stem

CATEGORIES = {1: "person", 18: "dog", 17: "cat", 44: "bottle", 63: "couch", 37: "sports ball"}


@pytest.fixture(scope="module")
def language():
    return english()


def labels(**shares):
    """A label picture in which categories have these shares of the pixels."""
    flat = np.zeros(1000, np.uint8)
    start = 0
    for name, share in shares.items():
        number = next(id_ for id_, known in CATEGORIES.items() if known == name.replace("_", " "))
        flat[start : start + round(1000 * share)] = number
        start += round(1000 * share)
    return flat.reshape(20, 50)


@pytest.fixture(scope="module")
def known(language):
    captions = ("A puppy lies on a sofa.", "Two children play with a puppy in a kitchen.", "A dog, indoors.")
    return scene(labels(dog=0.2, person=0.1, bottle=0.002), CATEGORIES, captions, language)


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("dogs", (True, "mask")),
        ("woman", (True, "mask")),  # another word for a person
        ("animal", (True, "mask")),  # a dog is one
        ("bottle", (True, "mask")),
        ("sofa", (True, "reference")),
        ("couch", (True, "reference")),
        ("kitchen", (True, "reference")),
        ("room", (True, "reference")),
        ("cat", (False, "mask")),
        ("sports ball", (False, "mask")),
        ("ball", (False, "mask")),
        ("guitar", (False, "neither")),
        ("toy", (False, "neither")),  # no teddy bear is there, but other toys could be
    ],
)
def test_a_noun_is_there_by_its_mask_or_by_what_people_wrote(known, language, noun, expected):
    assert known.judge(noun, language) == expected


def test_without_masks_only_captions_count_and_what_several_people_named_is_present(language):
    told = scene(None, {}, ("A dog runs in the grass.", "The dog is fast.", "A brown dog on a lawn."), language)
    assert told.present() == ["dog"]
    assert told.judge("lawn", language) == (True, "reference")
    assert told.judge("cat", language) == (False, "neither")
    assert scene(None, {}, (), language).present() == []


def test_other_words_and_kinds_lead_back_to_the_same_things(language):
    table = kinds()
    assert {"sofa", "loveseat"} <= table.satisfying("couch")
    assert "puppy" in table.satisfying("animal")
    assert "animal" not in table.satisfying("dog")
    assert stem("Traffic Lights", language) == "traffic-light"
    assert all(word == word.lower() for words in table.same.values() for word in words)


def test_absent_names_are_absent_popular_and_often_together(language):
    scenes = [scene(labels(dog=0.2, couch=0.2), CATEGORIES, (), language)] * 6
    scenes += [scene(labels(person=0.3, sports_ball=0.1), CATEGORIES, (), language)] * 9
    scenes += [scene(labels(cat=0.3), CATEGORIES, (), language)]
    names = Names(scenes, language)
    alone = scene(labels(dog=0.2), CATEGORIES, ("A dog.",), language)
    for seed in range(5):
        drawn = names.draw(alone, 1, np.random.default_rng(seed))
        by_kind = {name.drawn: name for name in drawn}
        assert [name.drawn for name in drawn] == ["present", "together", "popular", "random"]
        assert by_kind["present"].text == "dog"
        assert by_kind["present"].there
        assert not any(name.there for name in drawn[1:])
        assert len({name.text for name in drawn}) == 4
        assert not {name.text for name in drawn[1:]} & {"dog"}
    assert [n.text for n in names.draw(alone, 1, np.random.default_rng(3))] == [
        n.text for n in names.draw(alone, 1, np.random.default_rng(3))
    ]
    firsts = {names.draw(alone, 1, np.random.default_rng(seed))[1].text for seed in range(20)}
    assert "couch" in firsts


def test_nothing_is_asked_about_a_picture_of_which_nothing_is_known(language):
    names = Names([scene(None, {}, (), language)], language)
    assert names.draw(scene(None, {}, (), language), 2, np.random.default_rng(0)) == []
    assert "left" in NAMELESS
