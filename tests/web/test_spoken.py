"""Tasks: what is watched while the model speaks is what is reported afterwards, and what is wrong is said first."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import ercr
from ercr.errors import InputError
from ercr.image.images import load_image
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.live import Live, kept, note
from ercr.web.shelf import Shelf
from ercr.web.spoken import Speech, carry_out
from ercr.web.tasks import Desk, Task


@pytest.fixture
def task(picture):
    return Task(load_image(picture), "Describe this image.", "tiny", ("ercr", "tam"), None, 12)


def test_watched_words_and_both_methods_agree_with_explaining_at_once(load, task, monkeypatch):
    monkeypatch.setattr("ercr.web.spoken._PAUSE", 0.0)
    explainer = load("qwen2_vl")
    *speeches, explanations = carry_out(task, explainer)
    at_once = explainer.explain_all(task.image, task.prompt, methods=task.methods, max_new_tokens=task.length)
    assert len(speeches) == 13  # one per token, and one when all is said
    assert [e.provenance for e in explanations] == [e.provenance for e in at_once]
    for watched, expected in zip(explanations, at_once, strict=True):
        assert watched.text == expected.text
        np.testing.assert_allclose(watched.maps, expected.maps, atol=2e-5)
    said = [(text.strip(), evidence) for text, evidence in speeches[-1].words() if text.strip()]
    assert [text for text, _ in said] == [word.text for word in at_once[0].words]
    np.testing.assert_allclose([e for _, e in said], [word.map for word in at_once[0].words], atol=2e-5)


def test_given_sentences_and_methods_that_cannot_stream_come_at_once(load, picture):
    image = load_image(picture)
    given = Task(image, "What?", "tiny", ("ercr",), "a dog on a sofa", 12)
    assert [e.text for e in next(carry_out(given, load("llava")))] == ["a dog on a sofa"]
    whole = Task(image, "What?", "tiny", ("attention", "ercr"), None, 4)
    first, second = next(carry_out(whole, load("llava")))
    assert first.text == second.text


class Tags(HTMLParser):
    def __init__(self, document):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(document)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, sorted(name for name, _ in attrs)))

    def handle_data(self, data):
        self.text += data


def test_markup_that_a_model_says_is_shown_as_text(picture, load, task):
    explanation = load("qwen2_vl").explain(task.image, task.prompt, max_new_tokens=2)
    hostile = ' <img/src=x onerror="alert(1)">'
    speech = Speech(explanation.geometry, [hostile, " &amp;", " end"], [explanation.maps[0]] * 3)
    answer, strip = Live(picture).update(speech)
    assert {tag for tag, _ in Tags(answer).tags} == {"p", "span"}
    assert Tags(answer).text == f"{hostile} &amp; end"
    assert {tag for tag, _ in Tags(strip).tags} == {"figure", "img", "figcaption"}
    assert all(names == ["alt", "src"] for tag, names in Tags(strip).tags if tag == "img")
    assert {tag for tag, _ in Tags(note(hostile) + kept("k", [(hostile, hostile)], hostile)).tags} == {
        "p",
        "div",
        "span",
        "a",
    }


def test_wrong_requests_are_refused_in_one_sentence(tmp_path, monkeypatch, picture):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Folder(Limits())
    picture.save(folder.examples / "x.png")
    image = {"path": str(folder.examples / "x.png")}
    desk = Desk(folder, Limits(prompt_characters=20), ("one", "two"), ("ercr", "tam"))
    assert desk.task(image, "Hello?").methods == ("ercr",)
    assert desk.task(image, "Hello?", other="tam", length=5.0).length == 5
    cases = [
        ((None, "hi"), {}, "no picture yet"),
        (({"path": "/etc/passwd"}, "hi"), {}, "uploaded to this server"),
        ((image, " "), {}, "prompt is empty"),
        ((image, "x" * 21), {}, "21 characters, and 20 are allowed"),
        ((image, ["x"]), {}, "must be text"),
        ((image, "hi", ""), {}, "sentence is empty"),
        ((image, "hi"), {"method": "ercs"}, "Did you mean 'ercr'"),
        ((image, "hi"), {"other": "ercr"}, "two different methods"),
        ((image, "hi"), {"model": "three"}, "no model 'three'"),
        ((image, "hi"), {"length": 0}, "between 1 and 128"),
        ((image, "hi"), {"length": float("nan")}, "number of tokens"),
        ((image, "hi"), {"length": "9"}, "number of tokens"),
    ]
    for given, options, says in cases:
        with pytest.raises(InputError, match=says):
            desk.task(*given, **options)


def test_a_model_is_loaded_once_and_only_if_it_was_named(load, checkpoint):
    loads = []

    def loader(name):
        loads.append(name)
        return ercr.Explainer.around(load("llava").adapter, name)

    path = str(checkpoint("llava"))
    shelf = Shelf(["scenes-qwen2vl", path], loader)
    assert shelf.names == ["scenes-qwen2vl", checkpoint("llava").name]  # no path of this machine
    assert shelf.get(shelf.names[1]) is shelf.get(shelf.names[1])
    assert loads == [path]
    with pytest.raises(InputError, match="has no model"):
        shelf.get(path)
    with pytest.raises(InputError, match="neither a packaged model"):
        Shelf(["scenes-qwen"], loader)
