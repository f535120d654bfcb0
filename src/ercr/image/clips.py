"""Clips: what a user gives as a video, and the frames of it that a model is shown. Files are read by `video.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from ercr.errors import ImageError, InputError
from ercr.image.facts import Facts
from ercr.image.images import load_image
from ercr.image.tensors import is_array

SUFFIXES = (
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts", ".3gp", ".ogv"),
    *(".flv", ".wmv"),
)
MAX_BYTES = 2**31  # of decoded frames in memory
GIVEN_RATE = 2.0  # frames a second of frames that are given without a rate, the rate at which models sample clips


class Source(Protocol):
    """A video of which single frames can be read."""

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> Facts: ...

    def read(self, indices: Sequence[int]) -> list[Image.Image]:
        """The frames at ascending indices."""


# the indices of the frames to read, from the video's facts, frames a second and number of frames (None: not given)
Sampling = Callable[[Facts, float | None, int | None], Sequence[int]]


@dataclass(frozen=True)
class Clip:
    """A video to explain: a file, its bytes, an http(s) address, a list of frames or an array [T, H, W, 3].

    Of a file, the model's own rule chooses the frames; `fps` (frames a second) or `num_frames` change that. Of given
    frames all are shown, and `fps` says how many of them make a second (2 if it is omitted).
    """

    source: Any
    fps: float | None = None
    num_frames: int | None = None

    def __post_init__(self) -> None:
        if self.fps is not None and self.num_frames is not None and not self.given:
            raise InputError("Give fps or num_frames for a video, not both.")
        if self.fps is not None and not (_is_number(self.fps) and 0 < float(self.fps) <= 1000):
            raise InputError(f"fps must be a number above 0, not {self.fps!r}.")
        if self.num_frames is not None and not (isinstance(self.num_frames, int) and self.num_frames > 0):
            raise InputError(f"num_frames must be a whole number of at least 1, not {self.num_frames!r}.")

    @property
    def given(self) -> bool:
        """Whether the frames themselves are given."""
        return isinstance(self.source, list | tuple) or is_array(self.source)

    def load(self, choose: Sampling) -> LoadedClip:
        """The frames that a model is shown; `choose` is its rule."""
        source = self._open()
        facts = source.facts
        if self.given and self.num_frames is None:
            indices: Sequence[int] = range(facts.frames)
        else:
            indices = choose(facts, None if self.given else self.fps, self.num_frames)
        needed = len(indices) * 3 * facts.size[0] * facts.size[1]
        if needed > MAX_BYTES:
            raise ImageError(
                f"{source.name} would take {needed / 2**30:.1f} GiB for {len(indices)} frames of "
                f"{facts.size[1]} x {facts.size[0]} pixels, and {MAX_BYTES // 2**30} are allowed: take fewer frames "
                f"with num_frames= or fps=, or scale it down."
            )
        frames = source.read(indices)
        return LoadedClip(tuple(frames), tuple(int(index) for index in indices), facts)

    def _open(self) -> Source:
        if self.given:
            return GivenFrames(self.source, float(self.fps or GIVEN_RATE))
        from ercr.image.video import open_video

        return open_video(self.source)


@dataclass(frozen=True)
class LoadedClip:
    """The frames of a video that a model is shown, with their places among all of its frames."""

    frames: tuple[Image.Image, ...]
    indices: tuple[int, ...]
    facts: Facts

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of a frame in pixels."""
        return self.frames[0].height, self.frames[0].width

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds from the beginning at which the frames stand."""
        return tuple(index / self.facts.fps for index in self.indices)

    @property
    def end(self) -> float:
        return self.facts.seconds

    def sha256(self) -> str:
        """Hash of sizes and pixels of all frames, and of their times."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        digest = hashlib.sha256(f"{self.size[1]}x{self.size[0]}:{list(self.indices)}:{self.facts}:".encode())
        for frame in self.frames:
            digest.update(frame.tobytes())
        return digest.hexdigest()


class GivenFrames:
    """A video whose frames are in memory: pictures of one size, or an array [T, H, W, 3] or [T, 3, H, W]."""

    name = "the clip"

    def __init__(self, frames: Any, fps: float) -> None:
        if is_array(frames) and (frames := _array(frames)).ndim != 4:
            raise ImageError(f"An array of a clip must be [T, H, W, 3], not {list(frames.shape)}.")
        if not len(frames):
            raise ImageError("The clip has no frames: give at least one.")
        self._frames = [load_image(frame).rgb for frame in frames]
        sizes = {frame.size for frame in self._frames}
        if len(sizes) > 1:
            some = " and ".join(f"{width} x {height}" for width, height in sorted(sizes)[:2])
            raise ImageError(f"The frames of a clip must have one size, not {some} pixels.")
        width, height = self._frames[0].size
        self.facts = Facts(len(self._frames), fps, (height, width))

    def read(self, indices: Sequence[int]) -> list[Image.Image]:
        return [self._frames[index] for index in indices]


def is_video_name(source: object) -> bool:
    """Whether a path or an address names a video by its ending."""
    if not isinstance(source, str | PathLike):
        return False
    name = str(fspath(source)).split("?")[0].split("#")[0]
    return Path(name).suffix.lower() in SUFFIXES


def evenly(facts: Facts, count: int) -> list[int]:
    """Indices of so many frames, or of all if there are not so many, each in the middle of its part of the video."""
    count = min(count, facts.frames)
    return [int((i + 0.5) * facts.frames / count) for i in range(count)]


def _array(frames: Any) -> Any:
    return frames if hasattr(frames, "ndim") else np.asarray(frames)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
