"""Figures made from explanations by hand: what they contain, what they never do, what they refuse."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ercr.errors import InputError
from tests.render import made

pytest.importorskip("matplotlib")

import matplotlib

import ercr.figures as figures
from ercr.figures.choice import choose, notable, sentence
from ercr.figures.panel import Shade
from ercr.figures.sheet import drawing, flow, measured
from ercr.figures.strip import token_texts
from ercr.metrics.faithfulness import CURVE

METHODS = ("cam", "tam", "ercr")


@pytest.fixture
def explanations():
    return [made.explanation(method=method) for method in METHODS]


def texts(figure):
    """Every text of a figure that would be drawn."""
    figure.canvas.draw()
    found = [text.get_text() for text in figure.findobj(matplotlib.text.Text) if text.get_visible()]
    return [text for text in found if text]


def labels(figure):
    return [axes.get_label() for axes in figure.axes]


def clipped(figure):
    """Texts that reach beyond the sheet, at a resolution where letters have their own widths."""
    figure.set_dpi(200)
    figure.canvas.draw()
    width, height = figure.canvas.get_width_height()
    found = []
    for text in figure.findobj(matplotlib.text.Text):
        if text.get_text() and text.get_visible():
            box = text.get_window_extent()
            if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height:
                found.append(text.get_text())
    return found


def variants():
    kinds = [((1.0,), "none"), ((0.5, 1.0), "none"), ((1.0,), "pcr"), ((0.5, 1.0), "mean"), ((0.5, 1.0), "tam")]
    base = made.explanation()
    return [
        replace(base, provenance={**base.provenance, "settings": {"scales": scales, "context": context}})
        for scales, context in [*kinds, ((0.5, 0.75, 1.0), "pcr")]
    ]


def film(explanations, word="dog"):
    chosen = choose(explanations, [word])[0]
    fall = tuple(np.log(np.linspace(0.9, 0.1, len(CURVE))))
    return [figures.Response(e, chosen, CURVE, fall, fall[::-1], "mean") for e in explanations]


KINDS = {
    "methods": lambda found, **o: figures.methods_grid(found, ["dog", "kangaroo", (9, 11)], **o),
    "ablation": lambda found, **o: figures.ablation_grid(variants(), ["dog", "and"], **o),
    "tokens": lambda found, **o: figures.token_strip(found[-1], **o),
    "faithfulness": lambda found, **o: figures.faithfulness_film(film(found), **o),
    "film": lambda found, **o: figures.film_strip(made.pieces("picture", "clip"), ["dog", (9, 11)], **o),
}


def test_a_grid_has_a_panel_for_every_method_and_word(explanations):
    figure = figures.methods_grid(explanations, ["dog", "kangaroo", (9, 11)])
    expected = {f"{name}: {word}" for name in ("CAM", "TAM", "ERCR") for word in ("dog", "kangaroo", "a house")}
    assert set(labels(figure)) == expected | {"image", "colour bar"}
    assert {"CAM", "TAM", "ERCR", "“dog”", "“kangaroo”", "“a house”"} <= set(texts(figure))
    assert "evidence" in " ".join(texts(figure))
    assert figure.get_size_inches()[0] == pytest.approx(7.16)


def test_peaks_stand_in_their_corners_and_values_are_not_stretched(explanations):
    word = explanations[0].word("dog")
    assert f"{word.map.max():.2f}" in texts(figures.methods_grid(explanations, ["dog"]))
    figure = figures.methods_grid(explanations, ["dog"], scale="value")
    assert f"{word.map.max():.2f}" not in texts(figure)
    half = np.full((4, 4), 0.5, np.float32)
    np.testing.assert_array_equal(Shade("value").light(half), half)
    assert Shade("peak").light(half).max() == 1
    assert Shade("peak").light(half / 10).max() < 0.5, "a faint map stays faint"


def test_the_ablation_says_what_each_column_is():
    figure = figures.ablation_grid(variants(), ["dog", "and"])
    named = {label.split(":")[0] for label in labels(figure)}
    expected = {"Baseline", "ER only", "PCR only", "ER + mean sub.", "ER + TAM-style", "ER + PCR"}
    assert named == expected | {"image", "colour bar"}
    assert {"1 view", "2 views", "3 views", "no context"} <= set(texts(figure))


def test_a_strip_has_a_panel_for_every_token(explanations):
    figure = figures.token_strip(explanations[-1])
    assert len(figure.axes) == len(explanations[-1].tokens) + 2
    assert {"kang·", "·aroo", ","} <= set(texts(figure))
    assert len(figures.token_strip(explanations[-1], part="prompt").axes) == len(made.PROMPT) + 2
    assert token_texts(explanations[-1].tokens)[:4] == ["A", "red", "kang·", "·aroo"]


def test_a_film_has_the_pictures_and_the_curves(explanations):
    figure = figures.faithfulness_film(film(explanations), shares=(0.1, 0.4))
    assert "TAM: 40 % deleted" in labels(figure)
    assert "ERCR: 10 % inserted" in labels(figure)
    deletion = next(axes for axes in figure.axes if axes.get_label() == "Deletion")
    lines = {line.get_label(): line for line in deletion.lines if line.get_label().startswith(("CAM", "TAM", "ERCR"))}
    assert set(lines) == {"CAM (0.50)", "TAM (0.50)", "ERCR (0.50)"}
    np.testing.assert_allclose(lines["ERCR (0.50)"].get_ydata(), np.linspace(0.9, 0.1, len(CURVE)))


def test_the_film_shows_the_pictures_that_are_scored(explanations):
    """40 % of the pixels of the picture have changed in the frame that says so."""
    image = made.photo((40, 60))
    pictured = made.explanation(image=image, grid=(4, 6))
    figure = figures.faithfulness_film(film([pictured]), shares=(0.4,))
    axes = next(axes for axes in figure.axes if axes.get_label().endswith("40 % deleted"))
    shown = axes.images[0].get_array()
    blank = np.asarray(image).reshape(-1, 3).mean(0).round()
    assert (np.abs(shown.astype(float) - blank).max(-1) < 2).mean() == pytest.approx(0.4, abs=0.08)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", [".png", ".pdf"])
def test_every_kind_is_written_by_its_ending(tmp_path, explanations, kind, ending):
    path = tmp_path / f"figure{ending}"
    figures.save(KINDS[kind](explanations), path, dpi=60)
    data = path.read_bytes()
    if ending == ".png":
        assert Image.open(path).width == int(60 * 7.16)
    else:
        assert data.startswith(b"%PDF")
        assert data.count(b"/FontFile2") >= 1, "fonts are embedded whole"
        assert b"/Type3" not in data


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_clipped_in_any_width(explanations, kind):
    for width in (3.5, 7.16):
        assert clipped(KINDS[kind](explanations, width=width)) == []


def test_no_text_is_clipped_where_everything_is_long():
    answer = ("A", " " + "w" * 60, *(" and" for _ in range(120)), ".")
    long = [made.explanation(answer, method=m, image=made.photo((200, 60)), grid=(8, 3)) for m in METHODS]
    figure = figures.methods_grid(long, [1], labels=["a name that is too long to fit", "b" * 40, "c"], width=3.5)
    assert clipped(figure) == []
    assert any(text.endswith("…") for text in texts(figure))
    assert clipped(figures.token_strip(long[0], width=3.5)) == []
    assert clipped(figures.faithfulness_film(film(long, 1), width=3.5)) == []


def test_dollar_signs_are_dollar_signs(tmp_path):
    """Two dollar signs would be a formula, and this one would fail."""
    answer = ("A", " $\\frac", " costs", " $5", "\n", " 100", "%", ".")
    found = [made.explanation(answer, method=method) for method in METHODS]
    figure = figures.methods_grid(found, [1], labels=["$\\bad$", "x_{", "ok"])
    figures.save(figure, tmp_path / "x.pdf")
    figures.save(figures.token_strip(found[0]), tmp_path / "x.png", dpi=50)
    figures.save(figures.faithfulness_film(film(found, 1)), tmp_path / "y.png", dpi=50)
    assert "$\\bad$" in texts(figure)
    assert not any(text.get_parse_math() for text in figure.texts)


def test_what_the_model_never_saw_is_hatched():
    cropped = made.explanation(box=(20.0, 0.0, 110.0, 90.0))
    whole = made.explanation()
    for figure, strips in ((figures.token_strip(cropped), 2), (figures.token_strip(whole), 0)):
        pictures = [axes for axes in figure.axes if axes.get_label() != "colour bar"]
        assert {len(axes.patches) for axes in pictures} == {strips}
        assert all(patch.get_hatch() for axes in pictures for patch in axes.patches)
        assert any("Hatched" in text for text in texts(figure)) == bool(strips)
    patch = figures.token_strip(cropped).axes[0].patches[0]
    assert (patch.get_x(), patch.get_width()) == (0, 20)


def test_words_are_chosen_by_their_evidence(explanations):
    found = notable(explanations, count=3)
    content = {
        word.text: word.evidence for word in explanations[1].words if word.text not in "A a and beside . ,".split()
    }
    assert {word.text for word in found} <= set(content)
    assert min(word.evidence for word in found) >= sorted(content.values())[-3]
    assert [word.index for word in found] == sorted(word.index for word in found)
    both = notable(explanations, count=4, functions=2)
    assert sum(word.text in ("a", "and", "A", "beside") for word in both) == 2


def test_the_sentence_keeps_its_spaces():
    spoken = made.explanation(("A", " ", "$", "5", " dog", ",", " too"))
    pieces = sentence(spoken, choose([spoken], ["dog"]))
    text = "".join(("" if piece.glued else " ") + piece.text for piece in pieces).strip()
    assert text == "A $5 dog, too"
    assert [piece.text for piece in pieces if piece.bold] == ["dog"]
    with drawing():
        for line in flow(pieces, 0.5):
            assert all(at + measured(piece.text, 8.0, "bold")[0] <= 0.55 for at, piece in line)


def test_the_same_figure_gives_the_same_file(tmp_path, explanations):
    for ending in ("pdf", "svg"):
        for name in "ab":
            figures.save(figures.methods_grid(explanations, ["dog"]), tmp_path / f"{name}.{ending}")
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_drawing_leaves_matplotlib_as_it_was(tmp_path, explanations):
    before = dict(matplotlib.rcParams)
    figures.save(figures.methods_grid(explanations), tmp_path / "x.png", dpi=40)
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in matplotlib.__dict__ or not matplotlib.pyplot.get_fignums()


def test_characters_without_a_font_are_said_once(tmp_path):
    figure = figures.token_strip(made.explanation(("A", " \U00013080", " \U00013081", " \U00013080")))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        figures.save(figure, tmp_path / "x.png", dpi=40)
    assert len([w for w in heard if "\U00013080\U00013081" in str(w.message)]) == 1


def test_a_film_strip_has_a_panel_for_every_picture_and_part_of_a_clip():
    found = made.pieces("picture", "clip", frames=12)
    figure = figures.film_strip(found, ["dog"], frames=3)
    columns = ["picture 1", "0 s", "2 s", "5 s"]
    assert set(labels(figure)) == {*columns, *(f"{column}: dog" for column in columns), "colour bar"}
    assert "3 parts of the time are not shown." in " ".join(texts(figure))
    every = figures.film_strip(found, ["dog", "house"], frames=6)
    for word in ("dog", "house"):
        told = [axes.texts[0].get_text() for axes in every.axes if axes.get_label().endswith(f": {word}")]
        places = sorted(found.word(word).where(), key=lambda place: (place.picture, place.start or 0))
        assert told == [f"{100 * place.share:.0f} %" for place in places]
    phrase = found.phrase(0, len(found.words))  # of several tokens, each as strong as it is
    one = figures.film_strip(found, [phrase], frames=6)
    told = [axes.texts[0].get_text() for axes in one.axes if ": " in axes.get_label()]
    assert told == [f"{100 * share:.0f} %" for slices in phrase.shares for share in slices]


def test_a_film_strip_has_one_scale_for_all_frames_of_a_word():
    """Evidence that is a fifth as strong in another part of the clip is not lit as strongly."""
    found = made.pieces("clip", frames=4)
    figure = figures.film_strip(found, ["dog"], scale="peak")
    shown = {axes.get_label(): np.asarray(axes.images[0].get_array(), float) for axes in figure.axes if axes.images}
    colourful = {}
    for time, map_ in zip(("0 s", "1 s"), found.word("dog").maps[0], strict=True):
        pixels = shown[f"{time}: dog"]
        colourful[float(map_.max())] = (pixels.max(-1) - pixels.min(-1)).max()
    weak, strong = (colourful[key] for key in sorted(colourful))
    assert strong > 1.5 * weak


def test_mistakes_are_told_in_one_sentence(tmp_path, explanations):
    other = made.explanation(image=made.photo(seed=9))
    cases = [
        (lambda: figures.methods_grid([]), "explain_all"),
        (lambda: figures.methods_grid([explanations[0], other]), "one image and one answer"),
        (lambda: figures.methods_grid(explanations, ["zebra"]), "did not say"),
        (lambda: figures.methods_grid(explanations, []), "at least one word"),
        (lambda: figures.methods_grid(explanations, labels=["one"]), "as many labels"),
        (lambda: figures.methods_grid(explanations, colormap="infermo"), "inferno"),
        (lambda: figures.methods_grid(explanations, scale="best"), "value or peak"),
        (lambda: figures.methods_grid(explanations, width=0.5), "inches"),
        (lambda: figures.ablation_grid(explanations), "ABLATION"),
        (lambda: figures.film_strip(explanations[0], frames=0), "1 to 32"),
        (lambda: figures.film_strip(explanations[0], ["zebra"]), "did not say"),
        (lambda: figures.faithfulness_film([]), "responses"),
        (lambda: figures.faithfulness_film(film(explanations[:1]) + film(explanations[:1], "house")), "one word"),
        (lambda: figures.save(figures.token_strip(other), tmp_path / "x.gif"), ".png"),
        (lambda: figures.save(figures.token_strip(other), tmp_path / "x.png", dpi=0), "dpi"),
    ]
    for call, part in cases:
        with pytest.raises(InputError, match=part):
            call()


def test_matplotlib_is_loaded_only_when_something_is_drawn():
    code = "import sys, ercr.figures, ercr.commands.cli; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
