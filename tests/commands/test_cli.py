"""The command line as a user meets it: exit codes, streams, files, one clear sentence for each mistake."""

from __future__ import annotations

import json
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

import ercr


@pytest.fixture
def run(command):
    return command


def test_explain_prints_json_alone_on_standard_output(run, photo, checkpoint):
    code, out, _ = run("explain", photo, "--model", checkpoint("llava"), "--answer", "a dog on a sofa", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["text"] == "a dog on a sofa"
    assert [w["text"] for w in document["words"]] == ["a", "dog", "on", "a", "sofa"]
    assert len(document["words"][1]["map"]) == 12
    assert document["provenance"]["method"] == "ercr"


def test_explain_writes_every_kind_of_file(run, photo, checkpoint, tmp_path):
    targets = [tmp_path / f"x.{kind}" for kind in ("html", "png", "ercr", "json")]
    outs = [part for target in targets for part in ("--out", target)]
    code, _out, err = run(
        "explain", photo, "-m", checkpoint("qwen2_vl"), "--max-new-tokens", 4, "--method", "tam", *outs
    )
    assert code == 0
    assert all(str(target.name) in err for target in targets)
    assert "<main" in targets[0].read_text()
    assert Image.open(targets[1]).size == (130, 90)
    assert ercr.load(targets[2]).provenance["method"] == "tam"
    assert json.loads(targets[3].read_text())["provenance"]["generation"]["max_new_tokens"] == 4


def test_every_word_keeps_its_picture_and_one_that_was_not_said_costs_no_other(run, photo, checkpoint, tmp_path):
    common = ("explain", photo, "-m", checkpoint("llava"), "--answer", "a dog on a sofa", "--method", "cam")
    words = ("--word", "dog", "--word", "a sofa")
    code, _, err = run(*common, *words, "-o", tmp_path / "x.png", "-o", tmp_path / "x.npz")
    assert code == 0
    assert re.search(r"dog: (seen|unsure|guessed) 0\.\d\d, strength", err)
    assert re.search(r"a sofa: (seen|unsure|guessed) 0\.\d\d, strength", err)
    code, _, _ = run(*common, *words, "-o", tmp_path / "1.png", "-o", tmp_path / "2.png", "-o", tmp_path / "x.ercr")
    assert code == 0
    saved = ercr.load(tmp_path / "x.ercr")
    for name, word in {"x-dog": "dog", "x-a-sofa": "a sofa", "1": "dog", "2": "a sofa"}.items():
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / f"{name}.png")), saved.overlay(word))
    code, out, err = run(
        *common,
        "--word",
        "cat",
        "--word",
        "sofa",
        "--word",
        "bird",
        "-o",
        tmp_path / "y.png",
        "-o",
        tmp_path / "y.html",
    )
    assert (code, out.split()) == (2, ["a", "dog", "on", "a", "sofa"])
    assert err.strip().splitlines()[-1].endswith("The model did not say 'cat' or 'bird'; it said: a, dog, on, sofa.")
    assert sorted(path.name for path in tmp_path.glob("y*")) == ["y-sofa.png", "y.html"]
    code, out, _ = run(*common, "--word", "cat", "--json")
    assert (code, json.loads(out)["text"]) == (2, "a dog on a sofa")


def test_saved_explanations_are_shown_without_a_model(run, photo, checkpoint, tmp_path):
    names = {method: tmp_path / f"{method}.ercr" for method in ("cam", "tam")}
    for method, file in names.items():
        run("explain", photo, "-m", checkpoint("llava"), "--answer", "a dog", "--method", method, "-o", file)
    code, out, _ = run("show", names["cam"], "--word", "dog", "-o", tmp_path / "x.html", "-o", tmp_path / "x.npz")
    assert (code, out.strip()) == (0, "a dog")
    assert "<main" in (tmp_path / "x.html").read_text()
    with np.load(tmp_path / "x.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["maps"], [word.map for word in ercr.load(names["cam"]).words])
        assert arrays["words"].tolist() == ["a", "dog"]
    assert run("show", *names.values(), "-o", tmp_path / "both.html")[0] == 0
    assert '"label": "tam"' in (tmp_path / "both.html").read_text()
    for wrong, says in [
        (("show", tmp_path / "gone.ercr"), "There is no file"),
        (("show", photo), "not a readable explanation"),
        (("show", *names.values(), "-o", tmp_path / "both.png"), "ends in .html"),
        (("show", names["cam"], "--word", "cat"), "did not say 'cat'"),
    ]:
        code, out, err = run(*wrong)
        assert (code, out, len(err.strip().splitlines())) == (2, "", 1)
        assert says in err


def test_lists_are_tables_or_json(run):
    code, out, _ = run("methods")
    assert code == 0
    assert "ercr" in out
    names = [entry["name"] for entry in json.loads(run("methods", "--json")[1])]
    assert {"cam", "ercr", "tam"} <= set(names)
    data = json.loads(run("models", "--json")[1])
    assert "photo-mini" in data["packaged"]
    assert {f["family"] for f in data["families"]} == {"InternVL", "LLaVA-1.5", "Qwen2-VL"}
    assert "qwen2_5_vl" in run("models")[1]
    assert run("--version")[1].strip() == ercr.__version__


def test_mistakes_exit_with_two_and_one_sentence(run, photo, checkpoint, tmp_path):
    model = checkpoint("llava")
    text = tmp_path / "text.png"
    text.write_text("x")
    cases = [
        (["explain", tmp_path / "gone.jpg", "-m", model], "There is no file"),
        (["explain", text, "-m", model], "not an image"),
        (["explain", photo, "-m", model, "--method", "ercs"], "Did you mean 'ercr'"),
        (["explain", photo, "-m", model, "--prompt", " "], "prompt is empty"),
        (["explain", photo, "-m", model, "--answer", ""], "answer to explain is empty"),
        (["explain", photo, "-m", model, "--answer", "a dog", "--word", "cat"], "did not say 'cat'; it said: a, dog"),
        (["explain", photo, "-m", model, "--out", tmp_path / "no" / "x.html"], "does not exist"),
        (["explain", photo, "-m", model, "--out", tmp_path / "x.bmp"], "no known ending"),
        (["explain", photo, "-m", tmp_path / "nowhere"], "no checkpoint folder"),
        (["explain", photo, "-m", "scenes-qwen"], "neither a packaged model"),
        (["explain", photo, "-m", model, "--dtype", "float8"], "dtype must be"),
        (["explain", photo, "-m", model, "--max-new-tokens", "0"], "at least 1"),
        (["explain", photo, "-m", model, "--device", "cuda"], "no CUDA device"),
        (["explain", photo, "-m", model, "--device", "gpu"], "no device 'gpu'"),
        (["demo", "-m", model, "--out", text], "cannot be used"),
    ]
    before = sorted(p.name for p in tmp_path.iterdir())
    for arguments, says in cases:
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), (arguments, out, err)
        assert says in err, (says, err)
        assert len(err.strip().splitlines()) == 1
    assert run("explain")[0] == 2
    assert run("fly")[0] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(run, photo, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode, **more: mode != os.W_OK)  # chmod would not stop root
    code, _, err = run("explain", photo, "-m", "no/model", "--out", tmp_path / "x.html")
    assert code == 2
    assert "is not writable" in err


def test_incomplete_damaged_and_text_only_checkpoints_are_named(run, photo, checkpoint, tmp_path):
    whole = checkpoint("llava")
    for missing in ("config.json", "model.safetensors", "tokenizer.json", "preprocessor_config.json"):
        folder = tmp_path / missing.split(".")[0]
        shutil.copytree(whole, folder)
        (folder / missing).unlink()
        (folder / "processor_config.json").unlink(missing_ok=True)
        code, _, err = run("explain", photo, "-m", folder)
        assert (code, missing in err or "processor_config" in err) == (2, True), err
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    code, _, err = run("explain", photo, "-m", cut)
    assert code == 2
    assert "model.safetensors" in err
    assert "incomplete" in err
    text_only = tmp_path / "text"
    shutil.copytree(whole, text_only)
    (text_only / "preprocessor_config.json").unlink()
    (text_only / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    code, _, err = run("explain", photo, "-m", text_only)
    assert code == 2
    assert "'gpt2' are not supported" in err


def test_an_interrupt_is_said_and_has_its_own_status(command, photo, monkeypatch):
    def stop(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("ercr.image.images.load_image", stop)
    code, printed, said = command("explain", photo)
    assert (code, printed) == (130, "")
    assert said.endswith("interrupted\n")
