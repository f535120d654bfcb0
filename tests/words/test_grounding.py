"""Which words could name something, what a calibration makes of signals, and how phrases share it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ercr.errors import InputError
from ercr.words.calibration import Calibration, Part, find_calibration
from ercr.words.function_words import contents, language
from ercr.words.grounding import Signals, features, joined
from ercr.words.usual import Usual
from tests.render.made import explanation


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("A small dog lies on the sofa , next to 2 cushions .", "small dog lies sofa cushions"),
        ("Ein Hund liegt auf dem Sofa neben der Katze .", "Hund liegt Sofa Katze"),
        ("Un chien est sur le canapé avec une couverture .", "chien canapé couverture"),
        ("Un perro está en el sofá y hay una manta .", "perro sofá manta"),
        ("собака лежит на диване .", "собака лежит на диване"),
        ("", ""),
    ],
)
def test_words_that_could_name_something_in_several_languages(text, named):
    words = text.split()
    assert [word for word, content in zip(words, contents(words), strict=True) if content] == named.split()


def test_a_words_list_is_that_of_the_text_and_not_of_the_word():
    assert language("die Hunde und die Katze".split()) == "german"
    assert contents(["Die", "hard", "with", "a", "vengeance"]) == [True, True, False, False, True]
    assert contents(["Die", "Hunde", "und", "die", "Katze"]) == [False, True, False, False, True]


@pytest.mark.parametrize(
    "text", ["A car .", "A red car .", "Man in car .", "A son and a dove .", "Man in hat at door ."]
)
def test_english_things_that_are_function_words_elsewhere_name_something(text):
    words = text.split()
    named = {word for word, content in zip(words, contents(words), strict=True) if content}
    assert named == {word for word in words if word not in ("A", "a", "in", "and", "at", ".")}
    assert contents("La maison est petite car elle est loin".split())[4] is False


PARTS = (Part("a", 1.0, 2.0, 1.5), Part("b", 0.0, 1.0, -0.5, -1.0, 1.0))


@given(st.floats(-50, 50), st.floats(-50, 50))
def test_the_sum_is_logistic_and_its_parts_are_limited(a, b):
    found = Calibration("x", PARTS, 0.25, 0.3, 0.6)
    seen, parts = found.seen({"a": a, "b": b})
    expected = 0.25 + 1.5 * np.clip((a - 1) / 2, -3, 3) - 0.5 * np.clip(b, -1, 1)
    assert seen == pytest.approx(1 / (1 + math.exp(-expected)))
    assert sum(parts.values()) + 0.25 == pytest.approx(expected)
    assert found.verdict(seen) == ("guessed" if seen < 0.3 else "seen" if seen >= 0.6 else "unsure")


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.floats(0, 1))
def test_the_curve_is_numpys_interpolation(heights, at):
    places = np.linspace(0.1, 0.9, len(heights))
    curve = tuple(zip(places.tolist(), heights, strict=True))
    found = Calibration("x", (Part("a", 0.0, 1.0, 1.0, -100, 100),), 0.0, 0.3, 0.6, curve)
    value = math.log(at / (1 - at)) if 0 < at < 1 else 100 * (2 * at - 1)
    assert found.seen({"a": value})[0] == pytest.approx(np.interp(at, places, heights), abs=1e-6)


def test_what_was_not_measured_adds_nothing_and_json_keeps_all():
    found = Calibration("x", PARTS, 0.0, 0.3, 0.6, ((0.0, 0.1), (1.0, 0.9)), {"on": "drawn scenes"})
    assert set(found.seen({"a": 2.0})[1]) == {"a"}
    assert set(found.seen({"a": 2.0, "b": math.nan})[1]) == {"a"}
    assert Calibration.from_dict(found.to_dict()) == found


def test_function_words_are_told_from_others_and_probable_words_weigh_the_lens():
    lead = {"lens.size": 4.0, "lens.rank": 3.0, "focus": 0.5}
    found = features(-2.0, {"text": 1.0, "grey": 5.0}, lead, content=False)
    assert (found["function"], features(-2.0, {}, lead)["function"]) == (1.0, 0.0)
    assert found["effect"] == 1.0
    assert found["lens.log_rank"] == pytest.approx(math.log(3))
    assert found["likely.size"] == pytest.approx(4 * math.exp(-2.0) ** 0.5)


def test_what_a_model_chose_itself_is_weighed_by_its_doubt():
    lead = {"chosen": 1.0, "entropy": 2.5, "lens.lead": -0.5}
    found = features(-1.0, {}, lead)
    assert (found["chosen.entropy"], found["chosen.lead"]) == (2.5, -0.5)
    given = features(-9.0, {}, {**lead, "chosen": 0.0})
    assert given["chosen.entropy"] == given["chosen.lead"] == 0


def test_a_calibration_finds_its_table_of_usual_words_beside_it(tmp_path):
    sizes, means = np.random.default_rng(0).normal(2, 2, (2, 5, 40))
    table = Usual.of(sizes, means)
    made = Calibration("made", PARTS, 0.0, 0.3, 0.6, usual=table)
    (tmp_path / "made.json").write_text(json.dumps(made.to_dict()), encoding="utf-8")
    assert find_calibration(tmp_path / "made.json") == made
    assert find_calibration(tmp_path / "made.json").usual is None
    table.save(tmp_path / "made.npz")
    found = find_calibration(tmp_path / "made.json").usual
    np.testing.assert_allclose(found.size, np.quantile(sizes, 0.9, axis=0), atol=0.05)
    np.testing.assert_allclose(found.mean, means.mean(0), atol=0.05)
    (tmp_path / "made.npz").write_bytes(b"PK no table")
    with pytest.raises(InputError, match="is not a calibration"):
        find_calibration(tmp_path / "made.json")


def test_a_word_of_several_tokens_is_read_as_a_whole():
    calibration = Calibration("x", (Part("effect.text", 0.0, 1.0, 1.0, -9, 9),), 0.0, 0.3, 0.6)
    values = {"without.text": np.array([-1.0, -2.0, -3.0]), "lens.rank": np.array([5.0, 7.0, 9.0])}
    found = Signals(4, values, calibration).word([5, 6], [-0.5, -0.25], True)
    assert found.image_effect == {"text": pytest.approx(-0.75 - -5.0)}
    assert found.lens_rank == 7
    assert found.probability == pytest.approx(math.exp(-0.75))
    assert found.seen == pytest.approx(1 / (1 + math.exp(-4.25)))


def test_a_phrase_is_as_well_seen_as_its_least_seen_word_that_names_something():
    made = explanation(grounded=True)
    words = {word.text: word.grounding for word in made.words}
    phrase = made.phrase(made.word("small").index, made.word("and").index + 1).grounding
    assert phrase.seen == min(words["small"].seen, words["dog"].seen)
    assert phrase.probability == pytest.approx(math.prod(words[w].probability for w in ("small", "dog", ",", "and")))
    assert made.sentence().grounding.seen == min(word.seen for word in words.values() if word.content)
    assert not joined([words["and"], words[","]]).content
    assert joined([]) is None
    assert all(word.grounding is None for word in (*made.prompt_words, *explanation().words))


def test_what_moved_a_word_is_summed_by_what_it_is_about_and_the_most_comes_first():
    weights = {"effect": 0.5, "lens.size": 1.0, "lens.usual_mean": -0.5, "chosen.entropy": -2.0, "function": 3.0}
    parts = tuple(Part(name, 0.0, 1.0, weight) for name, weight in weights.items())
    values = {"without.text": np.log([0.05]), "lens.size": np.ones(1), "lens.usual_mean": np.ones(1)}
    values |= {"chosen": np.ones(1), "entropy": np.ones(1)}
    found = Signals(0, values, Calibration("x", parts, 0.0, 0.3, 0.6)).word([0], [math.log(0.1)], True)
    assert list(found.moves) == ["the model’s doubt", "what the image spells", "the image effect"]
    assert found.moves["what the image spells"] == pytest.approx(0.5)
    assert sum(found.moves.values()) == pytest.approx(sum(found.parts.values()) - found.parts["function"])
