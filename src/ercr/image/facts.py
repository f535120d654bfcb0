"""What is known of a video before any of its frames is decoded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """The number of frames, counted at a constant rate, and their size."""

    frames: int
    fps: float
    size: tuple[int, int]  # height, width

    @property
    def seconds(self) -> float:
        return self.frames / self.fps
