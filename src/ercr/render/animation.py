"""Writes moving pictures: GIF with Pillow, WebM and MP4 with PyAV."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from ercr.errors import InputError, missing

if TYPE_CHECKING:
    from ercr.render.film import Shot

SUFFIXES = (".gif", ".webm", ".mp4")
_CODECS = {".webm": ("webm", "libvpx-vp9"), ".mp4": ("mp4", "libx264")}
_OPTIONS = {  # small files at a quality at which letters stay sharp
    "libvpx-vp9": {"crf": "30", "b": "0", "deadline": "good", "cpu-used": "5"},
    "libx264": {"crf": "20", "preset": "medium"},
}
_RATE = 10  # frames a second of a video, unless shots are shorter; shots are repeated, which takes little room
_FASTEST = 30
_LEAST = 0.02  # seconds: browsers slow down GIFs that are faster


def check(path: Path) -> None:
    """Refuse a file that cannot be written, before any work is done: an unknown ending, or a missing extra."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path} has no known ending: use one of {', '.join(SUFFIXES)}.")
    if suffix in _CODECS:
        _pyav()


def animation(shots: Iterable[Shot], suffix: str) -> bytes:
    """The bytes of a file with some frames, each shown for its seconds."""
    return _gif(shots) if suffix.lower() == ".gif" else _video(shots, suffix.lower())


def _gif(shots: Iterable[Shot]) -> bytes:
    frames, durations = list[Image.Image](), list[int]()
    for image, seconds in shots:
        frames.append(image.convert("P", palette=Image.Palette.ADAPTIVE, colors=256))
        durations.append(round(1000 * max(seconds, _LEAST)))
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0)
    return buffer.getvalue()


def _video(shots: Iterable[Shot], suffix: str) -> bytes:
    av = _pyav()
    container_name, codec = _CODECS[suffix]
    found = list(shots)
    rate = min(_FASTEST, max(_RATE, round(1 / max(min(seconds for _, seconds in found), _LEAST))))
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container_name) as container:
        stream = container.add_stream(codec, rate=rate, options=_OPTIONS[codec])
        stream.width, stream.height = found[0][0].size
        stream.pix_fmt = "yuv420p"
        for image in _steady(found, rate):
            for packet in stream.encode(av.VideoFrame.from_image(image)):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return buffer.getvalue()


def _steady(shots: Iterable[Shot], rate: int) -> Iterator[Image.Image]:
    """The same at a constant rate: what is on the screen at every tick."""
    clock = made = 0.0

    def ticks(seconds: float) -> int:
        nonlocal clock, made
        clock += seconds * rate
        count = max(1, round(clock - made))
        made += count
        return count

    return chain.from_iterable([image] * ticks(seconds) for image, seconds in shots)


def _pyav() -> Any:
    try:
        import av
    except ImportError:
        raise missing("Videos are written with PyAV; GIF needs nothing more", "video") from None
    return av
