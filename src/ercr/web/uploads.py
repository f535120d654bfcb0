"""Reads an uploaded file as a picture; every error is one sentence."""

from __future__ import annotations

from pathlib import Path

from ercr.errors import ImageError
from ercr.image.images import LoadedImage, load_image, open_picture
from ercr.web.limits import Limits


def read_upload(path: Path, limits: Limits) -> LoadedImage:
    """The picture in an uploaded file; its size is checked before its pixels are decoded."""
    try:
        if path.stat().st_size > limits.upload_bytes:
            raise ImageError(f"The file is larger than {limits.upload_mb:g} MB: choose a smaller one.")
        encoded = path.read_bytes()
    except OSError:
        raise ImageError("The upload has been deleted: choose the picture again.") from None
    image = open_picture(encoded, "The picture", limits.pixels)
    return LoadedImage(load_image(image).rgb, encoded)
