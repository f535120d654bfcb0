"""Clips: the right frames at the right times, from files of many kinds and from frames in memory."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ercr.errors import ImageError, InputError
from ercr.image import video
from ercr.image.clips import Clip, GivenFrames, evenly, is_video_name
from ercr.image.facts import Facts

RATE = 25


def write(path: Path, times=None, codec="libx264", count=60, turned=0, keys=12, size=(48, 64)) -> Path:
    """A video whose frame i is a grey of value 4 i; `times` are milliseconds, otherwise the rate is constant."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=RATE)
        stream.height, stream.width, stream.pix_fmt = *size, "yuv420p"
        stream.codec_context.gop_size = keys
        if turned:
            stream.set_display_rotation(turned)
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for i in range(count):
            pixels = np.full((*size, 3), 4 * i % 256, np.uint8)
            pixels[: size[0] // 4, : size[1] // 4] = 255 if turned else 4 * i % 256
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[i], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def shown(clip) -> list[int]:
    """Which frames a clip shows."""
    return [round(float(np.asarray(frame)[-8:].mean()) / 4) for frame in clip.frames]


def ten(facts, fps, num_frames):
    return evenly(facts, num_frames or 10)


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "libx264"), ("a.webm", "libvpx-vp9"), ("a.mkv", "libx264"), ("a.avi", "mpeg4"), ("a.mov", "libx264")],
)
def test_at_a_constant_rate_index_i_is_frame_i(tmp_path, name, codec):
    path = write(tmp_path / name, codec=codec)
    for source in (path, str(path), path.read_bytes()):
        clip = Clip(source).load(ten)
        assert clip.facts == Facts(60, RATE, (48, 64))
        assert clip.indices == (3, 9, 15, 21, 27, 33, 39, 45, 51, 57)
        assert np.abs(np.subtract(shown(clip), clip.indices)).max() <= (1 if codec == "mpeg4" else 0)
        assert clip.times == tuple(i / RATE for i in clip.indices)
        assert (clip.end, clip.size) == (2.4, (48, 64))


def test_at_a_variable_rate_the_frame_on_the_screen_at_the_time_is_shown(tmp_path):
    times = np.cumsum([10 if i % 3 else 90 for i in range(60)])  # two short frames after each long one
    times -= times[0]
    for name in ("v.mp4", "v.mkv"):
        clip = Clip(write(tmp_path / name, times.tolist())).load(ten)
        late = 0.5 / clip.facts.fps + 1e-3
        on_screen = [int(np.flatnonzero(times <= (at + late) * 1000)[-1]) for at in clip.times]
        assert shown(clip) == on_screen


@pytest.mark.parametrize("keys", [5, 400])
def test_a_long_video_is_sought_and_not_decoded_as_a_whole(tmp_path, monkeypatch, keys):
    path = write(tmp_path / "long.mp4", list(range(0, 400 * 36_000, 36_000)), count=400, keys=keys)  # four hours
    decoded, own = [], video._decoded
    monkeypatch.setattr(video, "_decoded", lambda *given: (decoded.append(1) or f for f in own(*given)))
    clip = Clip(path, num_frames=4).load(ten)
    assert clip.end == pytest.approx(4 * 3600, rel=0.01)
    on_screen = [int((at + 0.5 / clip.facts.fps) // 36) % 64 for at in clip.times]
    assert shown(clip) == on_screen
    assert len(decoded) < (60 if keys == 5 else 500)
    tracemalloc.start()
    Clip(path, num_frames=4).load(ten)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_frame_is_turned_as_the_camera_was_held(tmp_path):
    for angle in (90, -90, 180):
        clip = Clip(write(tmp_path / f"{angle}.mp4", turned=angle, count=4)).load(ten)
        upright = Image.fromarray(np.pad(np.full((12, 16), 255, np.uint8), ((0, 36), (0, 48)))).rotate(
            angle, expand=True
        )
        assert clip.frames[0].size == upright.size
        bright = np.asarray(clip.frames[0].convert("L")) > 128
        assert (bright == (np.asarray(upright) > 128)).mean() > 0.97


def test_given_frames_are_all_shown_at_their_rate():
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (5, 20, 30, 3), dtype=np.uint8)
    pictures = [Image.fromarray(frame) for frame in frames]
    hashes = set()
    for source in (frames, np.moveaxis(frames, 3, 1), list(frames), pictures):
        clip = Clip(source, fps=4).load(ten)
        assert clip.times == (0, 0.25, 0.5, 0.75, 1)
        np.testing.assert_array_equal([np.asarray(frame) for frame in clip.frames], frames)
        hashes.add(clip.sha256())
    assert len(hashes) == 1
    assert Clip(frames, num_frames=2).load(ten).indices == (1, 3)


def test_bad_clips_get_one_sentence_each(tmp_path):
    pytest.importorskip("av")
    small, large = Image.new("RGB", (8, 8)), Image.new("RGB", (9, 8))
    whole = write(tmp_path / "whole.mp4").read_bytes()
    sound = tmp_path / "sound.wav"
    sound.write_bytes(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0D\xac\0\0\x88X\1\0\2\0\x10\0data\0\0\0\0")
    playlist = tmp_path / "list.m3u8"
    playlist.write_text(f"#EXTM3U\n#EXTINF:1,\n{tmp_path}/whole.mp4\n")
    cases = [
        ([], "has no frames: give at least one"),
        ([small, large], "must have one size, not 8 x 8 and 9 x 8"),
        (np.zeros((4, 8, 8), np.uint8), r"must be \[T, H, W, 3\], not \[4, 8, 8\]"),
        (tmp_path / "none.mp4", "There is no file"),
        (tmp_path, "is a folder"),
        (b"not a video at all", "is damaged or is not a video"),
        (whole[: len(whole) // 3], "is damaged or is not a video"),
        (sound, "is damaged or is not a video|no pictures, only sound"),
        (playlist, "is damaged or is not a video"),
        (5, "must be a path, bytes"),
        ("ftp://example.org/a.mp4", "http and https"),
    ]
    for source, says in cases:
        with pytest.raises(ImageError, match=says) as raised:
            Clip(source).load(ten)
        assert str(raised.value).endswith(".")
    for options, says in (
        ({"fps": 0}, "above 0"),
        ({"num_frames": 1.5}, "whole number"),
        ({"fps": 1, "num_frames": 2}, "not both"),
    ):
        with pytest.raises(InputError, match=says):
            Clip("a.mp4", **options)


def test_too_many_frames_for_memory_are_refused_before_any_is_decoded(tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4")
    monkeypatch.setattr("ercr.image.clips.MAX_BYTES", 50_000)
    monkeypatch.setattr(video.VideoFile, "read", lambda *given: pytest.fail("a frame was decoded"))
    with pytest.raises(ImageError, match=r"for 10 frames of 64 x 48 pixels.*num_frames="):
        Clip(path).load(ten)


def test_videos_are_known_by_the_ending_of_their_name():
    assert all(map(is_video_name, ("a.mp4", Path("b/c.MOV"), "https://example.org/x.webm?token=1")))
    assert not any(map(is_video_name, ("a.gif", "mp4", b"a.mp4", Clip("a.mp4"), GivenFrames)))
