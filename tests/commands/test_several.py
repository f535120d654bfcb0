"""Several pictures, videos and conversations on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import ercr
from tests.image.test_clips import write


@pytest.fixture
def files(tmp_path, picture):
    """Two pictures in a folder, and a conversation that shows both."""
    picture.save(tmp_path / "a.png")
    picture.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "b.png")
    chat = [
        {"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "a dog?"}]},
        {"role": "assistant", "content": "a cat on a sofa"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "And there?"}]},
    ]
    (tmp_path / "chat.json").write_text(json.dumps(chat))
    (tmp_path / "object.json").write_text(json.dumps({"messages": chat}))
    return tmp_path


def explain(command, checkpoint, *arguments):
    common = ("--json", "--no-grounding", "--max-new-tokens", 4, "--method", "cam")
    code, out, err = command("explain", *arguments, "-m", checkpoint("qwen2_vl"), *common)
    assert code == 0, err
    return json.loads(out)


def test_several_pictures_are_explained_together(command, checkpoint, load, files):
    data = explain(command, checkpoint, files / "a.png", files / "b.png", "--prompt", "What changed?")
    assert [np.shape(map_) for map_ in data["words"][0]["maps"]] == [(11, 16), (16, 11)]
    shown = [Image.open(files / name) for name in ("a.png", "b.png")]
    expected = load("qwen2_vl").explain(shown, "What changed?", method="cam", max_new_tokens=4)
    assert data["text"] == expected.text
    for word, said in zip(data["words"], expected.words, strict=True):
        for map_, own in zip(word["maps"], said.maps, strict=True):
            np.testing.assert_allclose(map_, own, atol=1e-5)


def test_a_conversation_comes_from_a_file_and_its_names_are_relative_to_it(command, checkpoint, files):
    for name in ("chat.json", "object.json"):
        data = explain(command, checkpoint, files / "b.png", "--messages", files / name)
        assert len(data["words"][0]["maps"]) == 2
    first = explain(command, checkpoint, "--messages", files / "chat.json", "--turn", 0)
    assert (first["text"], len(first["words"][0]["map"])) == ("a cat on a sofa", 11)


def test_a_video_is_shown_as_the_options_say(command, checkpoint, files):
    write(files / "clip.mp4")
    for options, slices in (((), 2), (("--num-frames", 6), 3), (("--fps", 5), 6)):
        data = explain(command, checkpoint, files / "clip.mp4", *options)
        (map_,) = data["words"][0]["maps"]
        assert len(map_) == slices
        assert {place["picture"] for place in data["words"][0]["where"]} == {0}


def test_the_check_of_an_answer_takes_them(command, checkpoint, files):
    pictures = (files / "a.png", files / "b.png")
    arguments = ("-a", "a dog on a sofa", "-m", checkpoint("qwen2_vl"), "--json")
    code, out, _ = command("check", *pictures, *arguments, "-o", files / "x.ercr")
    data = json.loads(out)
    assert (code, data["images"], len(data["words"])) == (0, [str(p) for p in pictures], 2)
    code, out, err = command("show", files / "x.ercr", "--word", "dog")
    assert (code, "in picture" in err) == (0, True), err


def test_mistakes_get_one_sentence(command, checkpoint, files):
    a, b, chat = (files / name for name in ("a.png", "b.png", "chat.json"))
    (files / "text.json").write_text("[1]")
    (files / "half.json").write_text("[")
    (files / "cut.mp4").write_bytes(b"no video")
    model = ("-m", checkpoint("qwen2_vl"))
    cases = [
        ((), "Give a picture or a video, or a conversation"),
        ((a, files), "stands for many pictures, each explained by itself"),
        ((a, b, "--pages"), "explained together: the options for many"),
        ((a, "--turn", 0), "--turn needs a conversation"),
        ((files, "--messages", chat), "not for many pictures"),
        (("--messages", chat, "-p", "What?"), "--messages or --prompt, not both"),
        (("--messages", chat), "1 places without a picture or clip of their own, and 0 are given"),
        ((a, b, "--messages", chat), "1 places without a picture or clip of their own, and 2 are given"),
        ((a, "--messages", chat, "--turn", 3), "has 1 answers of the assistant, so there is no turn 3"),
        (("--messages", files / "text.json"), "must hold a list of messages"),
        (("--messages", files / "half.json"), "is not JSON"),
        (("--messages", files / "none.json"), "There is no file"),
        ((files / "none.mp4",), "There is no file"),
        ((files / "cut.mp4",), "is damaged or is not a video"),
    ]
    pytest.importorskip("av")
    for arguments, says in cases:
        code, out, err = command("explain", *arguments, *model)
        assert (code, out, len(err.strip().splitlines())) == (2, "", 1), (arguments, err)
        assert says in err, (says, err)


def test_terminals_show_the_strongest_places(files, load, picture):
    explainer = load("qwen2_vl")
    clip = ercr.Clip([picture] * 4)
    for shown, pieces in ((clip, 1), ([picture, clip], 2)):
        explanation = explainer.explain(shown, answer="a dog on a sofa", method="cam")
        lines = explanation.to_ansi("dog")
        best = explanation.word("dog").where()[0]
        where = f"picture {best.picture + 1}" if pieces > 1 else f"{best.start:.1f} to {best.stop:.1f} s"
        assert f"{100 * best.share:.0f} % in {where}" in lines
        grids = ", ".join("x".join(map(str, piece.shape)) for piece in explanation.pieces)
        assert repr(explanation).endswith(f"grid{'s' if pieces > 1 else ''}={grids})")
