"""`ercr check`: verdicts in a table, as JSON, as an exit status, of one picture and of many."""

from __future__ import annotations

import json

import pytest
from PIL import Image

import ercr
from ercr.render.checked import bar

ANSWER = "A dog on a sofa next to a cat."


@pytest.fixture
def check(command, photo, checkpoint):
    """Run `ercr check` on the picture by a tiny random model."""

    def call(*arguments, picture=photo):
        return command("check", picture, "-m", checkpoint("llava"), "--method", "cam", *arguments)

    return call


def test_each_word_that_names_something_has_a_row_and_the_general_calibration_is_announced(check):
    code, out, err = check("--answer", ANSWER)
    assert code == 0
    assert out.splitlines()[0].strip() == ANSWER
    rows = [line.split() for line in out.splitlines()[2:] if line.split() and line.split()[0] in ("dog", "sofa", "cat")]
    assert [row[0] for row in rows] == ["dog", "sofa", "cat"]
    assert all(row[1] in ("seen", "unsure", "guessed") and 0 <= float(row[2]) <= 1 for row in rows)
    assert "general calibration" in err


def test_json_says_what_the_library_says(check, load, photo, tmp_path):
    code, out, err = check("--answer", ANSWER, "--json", "--without", "text,grey", "-o", tmp_path / "x.json")
    assert code == 0
    assert "Traceback" not in err
    found = json.loads(out)
    assert json.loads((tmp_path / "x.json").read_text()) == found
    assert (found["image"], found["answer"], found["given"]) == (str(photo), ANSWER, True)
    explanation = load("llava").check(photo, answer=ANSWER, method="cam", without=("text", "grey"))
    named = {word.index: word for word in explanation.words if word.grounding.content}
    assert [word["index"] for word in found["words"]] == list(named)
    for word in found["words"]:
        own = named[word["index"]]
        assert word["seen"] == pytest.approx(own.grounding.seen, abs=1e-5)
        assert word["verdict"] == own.grounding.verdict
        assert word["image_effect"] == pytest.approx(own.grounding.image_effect, abs=1e-4)
        left, top, right, bottom = word["where"]["box"]
        assert 0 <= left < right <= 130
        assert 0 <= top < bottom <= 90
    assert found["lowest"] == pytest.approx(min(word["seen"] for word in found["words"]))


def test_the_exit_status_says_whether_a_word_is_below_a_threshold(check):
    lowest = json.loads(check("--answer", ANSWER, "--json")[1])["lowest"]
    assert check("--answer", ANSWER, "--fail-below", str(max(lowest - 1e-3, 0)))[0] == 0
    code, _, err = check("--answer", ANSWER, "--fail-below", str(min(lowest + 1e-3, 1)))
    assert code == 1
    assert "Below" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--fail-below", "2"), "--fail-below must lie between 0 and 1"),
        (("--without", "pink"), "--without must be some of text, grey, black, noise"),
        (("--calibration", "mine"), "There is no calibration 'mine'"),
        (("--answer", " "), "The answer to explain is empty"),
        (("-o", "x.txt"), "has no known ending"),
    ],
)
def test_wrong_use_is_one_sentence(check, arguments, sentence):
    code, out, err = check(*arguments)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())


def test_pages_and_files_of_a_check_keep_what_was_found(check, tmp_path):
    check("--answer", ANSWER, "-o", tmp_path / "x.html", "-o", tmp_path / "x.ercr", "--calibration", "fixed")
    kept = ercr.load(tmp_path / "x.ercr")
    assert kept.provenance["grounding"] == {"calibration": "fixed", "without": ["text"]}
    assert '"calibration": "fixed"' in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_many_pictures_and_answers_are_checked_into_a_folder_that_resumes(check, tmp_path, picture, monkeypatch):
    monkeypatch.chdir(tmp_path)
    picture.save("a.png")
    picture.rotate(90, expand=True).save("b.png")
    lines = [{"image": "a.png", "answer": ANSWER}, {"image": "b.png", "answer": "A tree."}, {"image": "none.png"}]
    (tmp_path / "list.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, out, _ = check("--out", "run", picture="list.jsonl")
    assert code == 0
    assert "of the words of 3 pictures" in out
    code, again, _ = check("--out", "run", "--json", "--fail-below", "1", picture="list.jsonl")
    summary = json.loads(again)
    assert code == 1
    assert (summary["pictures"], summary["failed"]) == (3, 1)
    assert summary["seen"] + summary["unsure"] + summary["guessed"] == 4
    assert [one["image"] for one in summary["below"]] == ["a.png", "b.png"]
    code, _, _ = check("--out", "run", "--fail-below", "0", picture="list.jsonl")
    assert code == 1, "a picture that failed was not checked"
    code, _, err = check(picture="list.jsonl")
    assert code == 2
    assert "--out RUN" in " ".join(err.split())
    code, _, err = check("--answer", "A dog.", picture="list.jsonl")
    assert code == 2


def test_explain_tells_seen_from_guessed_and_compares(command, checkpoint, photo, tmp_path):
    common = ("explain", photo, "-m", checkpoint("llava"), "--method", "cam", "--answer", ANSWER)
    out = tmp_path / "x.html"
    code, _, err = command(*common, "--word", "dog", "--instead", "cat", "-o", out, "-o", tmp_path / "x.png")
    assert code == 0
    assert any(verdict in err for verdict in ("seen 0", "unsure 0", "guessed 0"))
    explanation = ercr.Explainer.from_pretrained(str(checkpoint("llava"))).explain(
        photo, answer=ANSWER, method="cam", candidates=["cat"], grounding=True
    )
    assert Image.open(tmp_path / "x.png").tobytes() == explanation.overlay_contrast("dog", "cat").tobytes()
    assert '"instead": [[' in out.read_text(encoding="utf-8")
    code, _, _ = command(*common, "--no-grounding", "--no-candidates", "-o", out)
    assert code == 0
    page = out.read_text(encoding="utf-8")
    assert '"grounding": null' in page
    assert '"instead": null' in page


def test_a_bar_is_as_long_as_its_share():
    assert [bar(share) for share in (0, 0.5, 1, 1.7)] == ["·" * 10, "█" * 5 + "·" * 5, "█" * 10, "█" * 10]
    assert bar(0.06).startswith("▋") or bar(0.06)[0] in "▏▎▍▌▋▊▉"
