"""Reads an uploaded file as a picture; every error is one sentence."""

from __future__ import annotations

from pathlib import Path

from ercr.errors import ImageError
from ercr.image.clips import GIVEN_RATE, Clip
from ercr.image.images import LoadedImage, load_image, open_picture
from ercr.web.limits import Limits

_PICTURES = 8  # of the largest size, as which the frames of a video may count


def read_upload(path: Path, limits: Limits) -> LoadedImage:
    """The picture in an uploaded file; its size is checked before its pixels are decoded."""
    encoded = _bytes(path, limits)
    image = open_picture(encoded, "The picture", limits.pixels)
    return LoadedImage(load_image(image).rgb, encoded)


def read_video(path: Path, limits: Limits) -> Clip:
    """The video in an uploaded file, of which the header is read; a long one is shown by few frames."""
    from ercr.image.video import VideoFile

    encoded = _bytes(path, limits)
    facts = VideoFile("The video", encoded).facts
    long = facts.seconds * GIVEN_RATE > limits.video_frames
    frames = min(facts.frames, limits.video_frames)
    if frames * facts.size[0] * facts.size[1] > _PICTURES * limits.pixels:
        most = _PICTURES * limits.megapixels
        raise ImageError(f"{frames} frames of the video have more than {most:g} megapixels: choose a smaller one.")
    return Clip(encoded, num_frames=limits.video_frames if long else None)


def _bytes(path: Path, limits: Limits) -> bytes:
    try:
        if path.stat().st_size > limits.upload_bytes:
            raise ImageError(f"The file is larger than {limits.upload_mb:g} MB: choose a smaller one.")
        return path.read_bytes()
    except OSError:
        raise ImageError("The upload has been deleted: choose the picture again.") from None
