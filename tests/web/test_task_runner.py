"""Tasks: what is shown while the model generates agrees with the final result, and wrong requests are refused first."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import ercr
from ercr.errors import ErcrError, InputError
from ercr.image.clips import Clip
from ercr.image.images import load_image
from ercr.web.answer_html import AnswerView, note, result_links
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.model_cache import ModelCache
from ercr.web.task_runner import PartialAnswer, run_task
from ercr.web.tasks import Task, TaskChecker


@pytest.fixture
def task(picture):
    return Task(load_image(picture), "Describe this image.", "tiny", ("ercr", "tam"), None, 12)


def test_streamed_words_and_both_methods_agree_with_explaining_at_once(load, task, monkeypatch):
    monkeypatch.setattr("ercr.web.task_runner._UPDATE_INTERVAL", 0.0)
    explainer = load("qwen2_vl")
    *partials, explanations = run_task(task, explainer)
    extras = {"candidates": True, "grounding": True}
    at_once = explainer.explain_all(task.image, task.prompt, methods=task.methods, max_new_tokens=task.length, **extras)
    assert len(partials) == 13  # one per token, and one when all is said
    assert [e.provenance for e in explanations] == [e.provenance for e in at_once]
    for watched, expected in zip(explanations, at_once, strict=True):
        assert watched.text == expected.text
        np.testing.assert_allclose(watched.maps, expected.maps, atol=2e-5)
        np.testing.assert_allclose(watched.alternatives.maps, expected.alternatives.maps, atol=2e-5)
        seen = [[word.grounding.seen for word in found.words] for found in (watched, expected)]
        np.testing.assert_allclose(*seen, atol=1e-4)
    said = [(text.strip(), evidence) for text, evidence in partials[-1].words() if text.strip()]
    assert [text for text, _ in said] == [word.text for word in at_once[0].words]
    np.testing.assert_allclose([e for _, e in said], [word.lit for word in at_once[0].words], atol=2e-5)


def test_given_sentences_and_methods_that_cannot_stream_come_at_once(load, picture):
    image = load_image(picture)
    given = Task(image, "What?", "tiny", ("ercr",), "a dog on a sofa", 12)
    assert [e.text for e in next(run_task(given, load("llava")))] == ["a dog on a sofa"]
    whole = Task(image, "What?", "tiny", ("attention", "ercr"), None, 4)
    first, second = next(run_task(whole, load("llava")))
    assert first.text == second.text


def test_words_about_several_pictures_are_drawn_on_the_right_one(load, picture, monkeypatch):
    monkeypatch.setattr("ercr.web.task_runner._UPDATE_INTERVAL", 0.0)
    clip = Clip([picture, picture.rotate(180)] * 2, 2.0)
    for shown, kinds in (([load_image(picture), load_image(picture)], {"picture"}), ([clip], {""})):
        several = Task(shown, "Describe this image.", "tiny", ("ercr",), None, 8)
        *partials, (found,) = run_task(several, load("qwen2_vl"))
        said = partials[-1].words()
        np.testing.assert_allclose([m for _, m in said], [word.lit for word in found.words], atol=2e-5)
        view = AnswerView(partials[-1].shown)
        strip = view.update(partials[-1])[1]
        assert strip.count("<img") == sum(any(map(str.isalnum, text)) for text, _ in said)
        assert all((f", {kind} " in strip) == bool(kind) for kind in kinds) or not strip


def test_videos_are_taken_where_they_are_allowed(tmp_path, monkeypatch, picture):
    pytest.importorskip("av", reason="videos are read with PyAV")
    from ercr.render.animation import animation

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = Folder(Limits())
    small = picture.resize((64, 48))
    (folder.examples / "x.mp4").write_bytes(animation([(small, 1.0), (small.rotate(180), 1.0)], ".mp4"))
    (folder.examples / "y.mp4").write_bytes(b"no video")
    small.save(folder.examples / "x.png")
    video, broken, still = ({"path": str(folder.examples / name)} for name in ("x.mp4", "y.mp4", "x.png"))

    def checker(**limits):
        return TaskChecker(folder, Limits(**limits), ("one",), ("ercr",))

    found = checker(videos=True).task(still, "Hello?", more=[video]).image
    assert [type(item).__name__ for item in found] == ["LoadedImage", "Clip"]
    assert found[1].num_frames is None
    assert checker(videos=True, video_frames=2).task(None, "Hi", more=[video]).image[0].num_frames == 2
    for limits, more, says in [
        ({}, [video], "takes no videos"),
        ({"videos": True}, [broken], "The video"),
        ({"videos": True, "megapixels": 0.0005}, [video], "megapixels"),
        ({"pictures": 2}, [still] * 3, "1 to 2 pictures, not 3"),
        ({}, [{"path": "/etc/passwd"}], "uploaded to this server"),
        ({}, ["/etc/passwd"], "uploaded to this server"),
        ({}, "x", "uploaded to this server"),
    ]:
        with pytest.raises(ErcrError, match=says):
            checker(**limits).task(None, "Hi", more=more)


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
    partial = PartialAnswer(explanation.geometry, [hostile, " &amp;", " end"], [explanation.maps[0]] * 3)
    answer, strip = AnswerView(picture).update(partial)
    assert {tag for tag, _ in Tags(answer).tags} == {"p", "span"}
    assert Tags(answer).text == f"{hostile} &amp; end"
    assert {tag for tag, _ in Tags(strip).tags} == {"figure", "img", "figcaption"}
    assert all(names == ["alt", "src"] for tag, names in Tags(strip).tags if tag == "img")
    assert {tag for tag, _ in Tags(note(hostile) + result_links("k", [(hostile, hostile)], hostile)).tags} == {
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
    checker = TaskChecker(folder, Limits(prompt_characters=20), ("one", "two"), ("ercr", "tam"))
    assert checker.task(image, "Hello?").methods == ("ercr",)
    assert checker.task(image, "Hello?", other="tam", length=5.0).length == 5
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
            checker.task(*given, **options)


def test_a_model_is_loaded_once_and_only_if_it_was_named(load, checkpoint):
    loads = []

    def loader(name):
        loads.append(name)
        return ercr.Explainer.around(load("llava").adapter, name)

    path = str(checkpoint("llava"))
    model_cache = ModelCache(["scenes-qwen2vl", path], loader)
    assert model_cache.names == ["scenes-qwen2vl", checkpoint("llava").name]  # no path of this machine
    assert model_cache.get(model_cache.names[1]) is model_cache.get(model_cache.names[1])
    assert loads == [path]
    with pytest.raises(InputError, match="has no model"):
        model_cache.get(path)
    with pytest.raises(InputError, match="neither a packaged model"):
        ModelCache(["scenes-qwen"], loader)
