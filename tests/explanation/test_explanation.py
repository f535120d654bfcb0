"""Words, phrases, context, saving, pictures and pages of an explanation."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

import ercr
from ercr.errors import FileFormatError, InputError, OutputError, WordNotFound
from tests.render import made

ANSWER = "a photo of two kangaroos and a dog , a red bicycle"


@pytest.fixture(scope="module")
def explanation(load, picture):
    return load("llava").explain(picture, "Describe this image.", answer=ANSWER)


def test_words_are_grouped_and_merged_as_asked(explanation):
    assert [w.text for w in explanation.words] == ANSWER.split()
    word = explanation.word("KANGAROOS")
    rows = [t.row for t in word.tokens]
    assert len(rows) > 1
    np.testing.assert_array_equal(word.map, explanation.maps[rows].max(0))
    np.testing.assert_array_equal(explanation.word("kangaroos", subwords="mean").map, explanation.maps[rows].mean(0))
    np.testing.assert_array_equal(explanation.word("kangaroos", subwords="first").map, explanation.maps[rows[0]])
    assert word.probability == pytest.approx(np.prod([t.probability for t in word.tokens]))


def test_occurrences_phrases_and_the_sentence(explanation):
    assert explanation.word("a", 1).index > explanation.word("a").index
    phrase = explanation.word("red bicycle")
    assert phrase.text == "red bicycle"
    np.testing.assert_array_equal(phrase.map, explanation.phrase(10, 12).map)
    np.testing.assert_array_equal(
        explanation.sentence().map, explanation.maps[[t.row for t in explanation.tokens]].max(0)
    )
    assert [w.text for w in explanation.prompt_words] == ["Describe", "this", "image", "."]


def test_words_in_quotes_and_stars_are_found(load, picture):
    marked = load("llava").explain(picture, "x", answer='a "dog" and a **cat** (on it)')
    assert marked.word("dog").text.strip('"') == "dog"
    assert "cat" in marked.word("cat").text


def test_a_word_that_was_not_said_names_those_that_were(explanation):
    with pytest.raises(WordNotFound, match=r"did not say 'kangaroo'; it said: a, photo, of.*Did you mean 'kangaroos'"):
        explanation.word("kangaroo")
    with pytest.raises(WordNotFound, match="3 times"):
        explanation.word("a", 3)
    with pytest.raises(WordNotFound, match="no word 40"):
        explanation.word(40)
    with pytest.raises(InputError, match="start < stop"):
        explanation.phrase(3, 3)
    with pytest.raises(InputError, match="max, mean or first"):
        explanation.word("dog", subwords="sum")


def test_context_says_what_was_subtracted_and_why(explanation, load, picture):
    beta, entries = explanation.context("dog")
    assert beta == pytest.approx(explanation.beta[explanation.word("dog").tokens[0].row])
    assert sum(e.alpha for e in entries) == pytest.approx(1, abs=1e-5)
    assert all(e.token.row < explanation.word("dog").tokens[0].row for e in entries)
    assert all(0 <= e.relevance <= 1 for e in entries)
    with pytest.raises(InputError, match="subtracts no context"):
        load("llava").explain(picture, "x", answer="a dog", method="cam").context("dog")


def test_heatmap_is_at_the_images_size_and_empty_where_nothing_was_seen(explanation, picture):
    heat = explanation.heatmap("dog")
    assert heat.shape == (picture.height, picture.width)
    assert heat.dtype == np.float32
    assert heat[~explanation.geometry.seen_pixels()].max() == 0
    assert explanation.seen == pytest.approx(90 / 130, abs=0.02)
    assert explanation.overlay("dog").size == picture.size


def test_candidates_and_probabilities_come_from_the_emitting_distribution(explanation):
    for token in explanation.tokens:
        listed = [c.probability for c in token.candidates]
        assert listed == sorted(listed, reverse=True)
        assert 0 < token.probability <= 1
        own = [c.probability for c in token.candidates if c.id == token.id]
        assert not own or own[0] == pytest.approx(token.probability, rel=1e-4)


def test_saving_and_loading_gives_everything_back(explanation, tmp_path):
    path = tmp_path / "x.ercr"
    explanation.save(path)
    back = ercr.load(path)
    assert back.text_tokens == explanation.text_tokens
    assert back.geometry == explanation.geometry
    assert back.provenance == json.loads(json.dumps(explanation.provenance))
    assert back.image.sha256() == explanation.image.sha256()
    for name in ("maps", "alpha", "beta", "relevance"):
        np.testing.assert_array_equal(getattr(back, name), getattr(explanation, name))
    assert back.stages.keys() == explanation.stages.keys()
    facts = back.provenance
    assert {
        "model",
        "revision",
        "method",
        "settings",
        "versions",
        "attention",
        "dtype",
        "image_backend",
        "image_device",
    } <= facts.keys()
    assert back.to_html() == explanation.to_html()


def test_damaged_and_foreign_files_are_refused(explanation, tmp_path):
    whole = tmp_path / "x.ercr"
    explanation.save(whole)
    data = whole.read_bytes()
    for name, content in {"cut": data[:-100], "text": b"hello", "empty": b""}.items():
        bad = tmp_path / name
        bad.write_bytes(content)
        with pytest.raises(FileFormatError, match="not a readable explanation"):
            ercr.load(bad)
    with pytest.raises(FileFormatError, match="There is no file"):
        ercr.load(tmp_path / "gone.ercr")
    with pytest.raises(OutputError, match="does not exist"):
        explanation.save(tmp_path / "no" / "x.ercr")
    with pytest.raises(OutputError, match="is a folder"):
        explanation.to_html(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut", "empty", "text", "x.ercr"]


def test_the_page_is_self_contained_and_escapes_hostile_text(load, picture):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    page = load("qwen2_vl").explain(picture, evil, answer=evil).to_html()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert not re.findall(r"(?:src|href)=[\"']?https?:", page)
    assert page.count("</script>") == 2
    assert len(page) < 1_500_000


def test_terminal_print_colours_the_words(explanation):
    text = explanation.to_ansi("dog")
    assert "\x1b[" in text
    assert "▀" in text
    assert "kangaroos" in re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_an_answer_of_nothing_is_an_empty_explanation(load, picture):
    explainer = load("llava")
    eos = explainer.adapter.tokenizer.eos_token_id
    silent = explainer.explain(
        picture, "x", max_new_tokens=3, generation={"forced_eos_token_id": eos, "max_new_tokens": 1}
    )
    assert silent.text == ""
    assert silent.words == ()
    assert "<main" in silent.to_html()
    with pytest.raises(InputError, match="said nothing"):
        silent.sentence()


def test_overlay_marks_strong_evidence_and_hatches_what_was_not_seen(explanation, picture):
    marked = np.asarray(explanation.overlay("dog", colormap="viridis"), float)
    plain = np.asarray(picture.convert("RGB"), float)
    heat, seen = explanation.heatmap("dog"), explanation.geometry.seen_pixels()
    lit = (marked - plain).mean(-1)
    assert lit[seen & (heat > 0.8 * heat.max())].mean() > 20 + lit[seen & (heat < 0.05)].mean()
    assert np.abs(marked - plain)[~seen].mean() > 10
    with pytest.raises(InputError, match="no colour map"):
        explanation.overlay("dog", colormap="virids")
    with pytest.raises(InputError, match="opacity"):
        explanation.overlay("dog", opacity=2)
    assert isinstance(explanation.overlay(), Image.Image)


def test_arrays_hold_every_map_and_where_it_lies(explanation):
    arrays = explanation.to_numpy()
    assert arrays["words"].tolist() == [word.text for word in explanation.words]
    np.testing.assert_array_equal(arrays["maps"], np.stack([word.map for word in explanation.words]))
    np.testing.assert_array_equal(arrays["token_maps"], explanation.maps)
    assert "".join(arrays["tokens"][arrays["token_in_answer"]]).strip() == explanation.text
    assert arrays["prompt_maps"].shape == (len(explanation.prompt_words), *explanation.geometry.grid)
    assert tuple(arrays["box"]) == explanation.geometry.box
    assert tuple(arrays["lean"]) == explanation.geometry.canvas.lean
    assert set(explanation.stages) == {name[6:] for name in arrays if name.startswith("stage_")}
    assert not any(array.dtype.hasobject for array in arrays.values())  # numpy.load reads them without pickles


@pytest.mark.parametrize("kind", ["lean", "seams"])
def test_a_file_keeps_where_cells_look(tmp_path, kind):
    seams = made.with_seams((6, 90), (9, 130))
    leaning = made.explanation(**{"lean": (Fraction(13, 100), Fraction(-2, 7))} if kind == "lean" else {"spans": seams})
    leaning.save(tmp_path / "x.ercr")
    kept = ercr.load(tmp_path / "x.ercr")
    assert kept.geometry == leaning.geometry
    np.testing.assert_array_equal(kept.heatmap("dog"), leaning.heatmap("dog"))
    arrays = kept.to_numpy()
    for name, places in zip(("row_centres", "column_centres"), leaning.geometry.canvas.centres, strict=True):
        np.testing.assert_allclose(arrays[name], places)


def test_a_file_whose_cells_lie_on_each_other_is_refused(tmp_path):
    bad = made.explanation(spans=made.with_seams((6, 90), (9, 130)))
    text = json.dumps(bad.geometry.to_dict()["panels"][0]["spans"])
    bad.save(tmp_path / "x.ercr")
    data = (tmp_path / "x.ercr").read_bytes()
    swapped = json.dumps([spans[::-1] for spans in json.loads(text)])
    escaped = json.dumps(text)[1:-1].encode()
    assert escaped in data
    (tmp_path / "x.ercr").write_bytes(data.replace(escaped, json.dumps(swapped)[1:-1].encode()))
    with pytest.raises(FileFormatError, match="not a readable explanation: "):
        ercr.load(tmp_path / "x.ercr")
