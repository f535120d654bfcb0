"""Limits on what visitors may request; knows nothing of the page or the models."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ercr.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Sizes of one request, how many requests run and wait, and how long results are kept."""

    upload_mb: float = 10.0
    megapixels: float = 16.0  # of a picture; a phone's photo has 12
    answer_tokens: int = 128
    prompt_characters: int = 2000
    concurrent: int = 2  # requests that run at a time
    queue: int = 64  # requests that may wait
    keep_minutes: float = 60.0  # uploads and results
    stored_mb: float = 2000.0  # all uploads and results together
    pictures: int = 8  # pictures and videos of one request
    videos: bool = False  # whether videos are accepted
    video_frames: int = 32  # of a video that the model's own rule would take more of

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "videos" and not getattr(self, field.name) > 0:
                raise InputError(f"The limit {field.name.replace('_', ' ')} must be more than 0.")

    @property
    def upload_bytes(self) -> int:
        return int(self.upload_mb * 1024 * 1024)  # as browsers count

    @property
    def pixels(self) -> int:
        return int(self.megapixels * 1_000_000)
