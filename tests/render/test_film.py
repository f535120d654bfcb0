"""Moving pictures: what they show and for how long, and the files."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from PIL import Image

from ercr.errors import InputError, MissingExtra
from ercr.render.animation import animation
from ercr.render.film import film, strongest
from tests.render.made import explanation, pieces


def close(found: Image.Image, expected: Image.Image) -> float:
    return float(np.abs(np.asarray(found, float) - np.asarray(expected, float)).mean())


def test_a_clip_moves_as_it_did_and_is_lit_for_the_word():
    made = pieces("clip", frames=6)
    shots = list(film(made, "dog"))
    assert [seconds for _, seconds in shots] == [0.5] * 6
    for frame, (image, _) in enumerate(shots):
        lit = made.overlay("dog", time=frame / 2)
        shown = image.crop((12, 12, image.width - 12, 12 + 360)).resize(lit.size, resample=Image.Resampling.BOX)
        assert close(shown, lit) < 4
    assert len({image.size for image, _ in shots}) == 1
    assert all(side % 2 == 0 for side in shots[0][0].size)


def test_the_marker_moves_over_the_curve_of_the_evidence():
    made = pieces("clip", frames=6)
    columns = []
    for image, _ in film(made, "dog"):
        pixels = np.asarray(image.convert("L"), int)
        curve = pixels[-50:-40]
        columns.append(int((curve < 60).all(0).argmax()))
    steps = np.diff(columns)
    assert (steps > 20).all()
    assert steps.max() - steps.min() <= 2


def test_of_pictures_the_words_appear_one_after_another():
    made = explanation()
    shots = list(film(made, "dog"))
    assert len(shots) == len(made.words) + 2
    ink = [int((np.asarray(image.convert("L"))[-60:] < 128).sum()) for image, _ in shots[:-1]]
    assert ink[0] == 0
    assert 0 < ink[1] < ink[4] < ink[8] < ink[-1]
    said = shots[1 + made.word("dog").index][0]
    size = made.image.rgb.size
    height = 360
    area = (12, 12, 12 + round(size[0] * height / size[1]), 12 + height)
    expected = made.overlay("dog").resize((area[2] - 12, height), resample=Image.Resampling.LANCZOS)
    assert close(said.crop(area), expected) < 12
    assert close(said.crop(area), shots[-1][0].crop(area)) < 1


def test_by_default_the_strongest_word_that_names_something_is_shown():
    made = pieces("picture", "clip")
    found = strongest(made)
    named = [word for word in made.words if word.text in ("red", "kangaroo", "small", "dog", "house")]
    assert found.text == max(named, key=lambda word: word.strength).text
    default, named_one = (list(film(made, which))[2][0] for which in (None, found.text))
    assert default.tobytes() == named_one.tobytes()


def test_an_empty_answer_has_no_film():
    with pytest.raises(InputError, match="said nothing"):
        film(pieces("clip", answer=()))


def test_gifs_hold_every_frame_with_its_time(tmp_path):
    made = pieces("picture", "clip", frames=4)
    made.animate(tmp_path / "x.gif", "dog")
    with Image.open(tmp_path / "x.gif") as found:
        times = []
        for frame in range(found.n_frames):
            found.seek(frame)
            times.append(found.info["duration"])
        assert times == [500] * 4
        assert found.info["loop"] == 0
        assert found.size == next(film(made, "dog"))[0].size


@pytest.mark.parametrize("suffix", [".webm", ".mp4"])
def test_videos_play_as_long_as_the_film_and_look_like_it(suffix):
    av = pytest.importorskip("av", reason="videos are written with PyAV")
    made = pieces("clip", frames=4)
    shots = list(film(made, "dog"))
    with av.open(io.BytesIO(animation(shots, suffix))) as container:
        frames = [frame.to_image() for frame in container.decode(video=0)]
        rate = container.streams.video[0].average_rate
    assert len(frames) / rate == pytest.approx(sum(seconds for _, seconds in shots), abs=0.11)
    for at, (image, _) in enumerate(shots):
        assert close(frames[int((0.25 + 0.5 * at) * rate)], image) < 6


def test_videos_without_the_extra_say_what_to_install_and_gifs_need_nothing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "av", None)
    made = pieces("clip", frames=2)
    with pytest.raises(MissingExtra, match=r"\.\[video\]"):
        made.animate(tmp_path / "x.mp4")
    with pytest.raises(InputError, match="no known ending"):
        made.animate(tmp_path / "x.avi")
    assert not list(tmp_path.iterdir())
    made.animate(tmp_path / "x.gif")


def test_saved_explanations_become_moving_pictures_in_the_terminal(command, tmp_path):
    pieces("picture", "clip", frames=4).save(tmp_path / "x.ercr")
    words = ("--word", "dog", "--word", "house")
    code, _, err = command("show", tmp_path / "x.ercr", *words, "-o", tmp_path / "x.gif", "-o", tmp_path / "x.png")
    assert code == 0, err
    assert "% in picture" in err
    for name in ("x-dog", "x-house"):
        assert (tmp_path / f"{name}.png").exists()
        with Image.open(tmp_path / f"{name}.gif") as found:
            assert found.n_frames == 4
    assert command("show", tmp_path / "x.ercr", "-o", tmp_path / "x.avi")[0] != 0
