"""Reads single frames of video files with PyAV, by their time stamps, with little memory whatever the length.

Frames are counted as if their rate were constant, which is how models' own rules count them. Index i stands for the
frame that is on the screen at i divided by the rate. So a variable rate is right in time, and at a constant rate index
i is frame i. Between two wanted frames the file is decoded and what is decoded is dropped, or a keyframe further on is
sought.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL import Image

from ercr.errors import ImageError, missing
from ercr.files.plain import open_plain
from ercr.image.addresses import download, is_address
from ercr.image.facts import Facts
from ercr.image.images import MAX_PIXELS

# containers of one file that refer to no other file or address
_FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,ogg,flv,asf,gif,apng,ivf,m4v,h264,hevc"
_FAR = 10.0  # seconds to the next wanted frame from which a keyframe is sought in files without an index
_NEAR = 0.5  # seconds that are decoded rather than sought
_BUFFER = 2**17


def open_video(source: Any) -> VideoFile:
    """A video from a path, an http(s) address or bytes; its header is read, no frame is decoded."""
    if isinstance(source, bytes | bytearray):
        return VideoFile("the video", bytes(source))
    if is_address(source):
        return VideoFile(str(source), download(source, kind="video"))
    if isinstance(source, str | os.PathLike):
        return VideoFile(str(source), Path(source))
    kinds = "a path, bytes, an http address, a list of frames or an array [T, H, W, 3]"
    raise ImageError(f"A video must be {kinds}, not {type(source).__name__}.")


class VideoFile:
    """A video file, or the bytes of one."""

    def __init__(self, name: str, source: Path | bytes) -> None:
        self.name, self._source = name, source
        with self._opened() as (container, stream):
            rate = stream.average_rate or stream.guessed_rate
            seconds = _seconds(container, stream)
            frames = stream.frames or round(float(rate or 0) * seconds)
            if not frames or not rate:  # a stream without a header, such as one that a browser has recorded
                frames, seconds = _counted(container, stream)
                rate = frames / seconds if seconds else 25
            turned = stream.codec_context.height, stream.codec_context.width
        if not frames:
            raise ImageError(f"{name} has no frames.")
        if turned[0] * turned[1] > MAX_PIXELS:
            raise ImageError(f"{name} has frames of {turned[1]} x {turned[0]} pixels: scale it down first.")
        self.facts = Facts(int(frames), float(rate), turned)

    def read(self, indices: Sequence[int]) -> list[Image.Image]:
        """The frames on the screen at ascending indices."""
        with self._opened() as (container, stream):
            found = list(_frames(container, stream, [index / self.facts.fps for index in indices], self.facts.fps))
        if not found:
            raise ImageError(f"{self.name} has no frames that can be decoded.")
        # a file may promise more frames than it has
        return found + found[-1:] * (len(indices) - len(found))

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, Any]]:
        try:
            av: Any = import_module("av")
        except ImportError:
            raise missing("Reading videos needs PyAV", "video") from None
        try:
            with self._bytes() as data, av.open(data, **_OPTIONS) as container:
                if not container.streams.video:
                    raise ImageError(f"{self.name} has no pictures, only sound or text: give a video.")
                stream = container.streams.video[0]
                stream.thread_type = "AUTO"
                yield container, stream
        except ImageError:
            raise
        # FFmpeg reports damage in many ways; all mean the same to a user
        except (av.FFmpegError, ValueError, EOFError, MemoryError) as error:
            reason = " ".join(str(getattr(error, "strerror", None) or error).split()).rstrip(".")
            raise ImageError(f"{self.name} is damaged or is not a video that can be read: {reason}.") from None

    def _bytes(self) -> Any:
        return io.BytesIO(self._source) if isinstance(self._source, bytes) else open_plain(self._source, ImageError)


_OPTIONS: dict[str, Any] = {
    "buffer_size": _BUFFER,
    "container_options": {"format_whitelist": _FORMATS, "protocol_whitelist": ""},
    "metadata_errors": "replace",
}


def _seconds(container: Any, stream: Any) -> float:
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    return float(container.duration or 0) / 1e6


def _counted(container: Any, stream: Any) -> tuple[int, float]:
    """The number of packets and the seconds from the first to behind the last; nothing is decoded."""
    times = [float(p.pts * p.time_base) for p in container.demux(stream) if p.pts is not None and p.time_base]
    if not times:
        return 0, 0.0
    span = max(times) - min(times)
    return len(times), span * len(times) / max(len(times) - 1, 1)


def _frames(container: Any, stream: Any, times: Sequence[float], fps: float) -> Iterator[Image.Image]:
    """The frame on the screen at each time: the last one that begins before it (up to half a frame late)."""
    begin = float((stream.start_time or 0) * stream.time_base)
    shown: Any = None
    coming = _decoded(container, stream)
    following = next(coming, None)
    for time in times:
        limit = begin + time + 0.5 / fps
        if following is not None and _worth_seeking(stream, _time(following), limit):
            container.seek(int(limit / stream.time_base), stream=stream, backward=True)
            coming = _decoded(container, stream)
            following = next(coming, None)
        while following is not None and (shown is None or _time(following) <= limit):
            shown, following = following, next(coming, None)
        if shown is None:
            return
        yield _upright(shown)


def _decoded(container: Any, stream: Any) -> Iterator[Any]:
    return (frame for frame in container.decode(stream) if frame.pts is not None)


def _time(frame: Any) -> float:
    return float(frame.pts * frame.time_base)


def _worth_seeking(stream: Any, here: float, there: float) -> bool:
    """Whether a keyframe lies between here and there, as the file's index says, or else if there is far away."""
    if there - here < _NEAR:
        return False
    index = stream.index_entries
    at = index.search_timestamp(int(there / stream.time_base), backward=True) if len(index) > 2 else -1
    if at >= 0:
        return float(index[at].timestamp * stream.time_base) > here + _NEAR
    return there - here > _FAR


def _upright(frame: Any) -> Image.Image:
    """A frame in RGB, turned as the camera was held."""
    picture = Image.fromarray(frame.to_ndarray(format="rgb24"))
    turns = round((frame.rotation or 0) / 90) % 4
    return picture.rotate(90 * turns, expand=True) if turns else picture
