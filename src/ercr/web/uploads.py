"""Uploaded bytes to a picture, with everything that can be wrong with them said in one sentence."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from ercr.errors import ImageError
from ercr.images import LoadedImage, load_image
from ercr.web.limits import Limits

# what browsers and cameras make; Pillow's other decoders are old, rarely used and need not be within reach of strangers
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "MPO", "AVIF")
_NAMES = "PNG, JPEG, WebP, AVIF, GIF, BMP or TIFF"


def read_upload(path: Path, limits: Limits) -> LoadedImage:
    """The picture in an uploaded file; its size is known before its pixels are decoded."""
    try:
        if path.stat().st_size > limits.upload_bytes:
            raise ImageError(f"The file is larger than {limits.upload_mb:g} MB: choose a smaller one.")
        encoded = path.read_bytes()
    except OSError:
        raise ImageError("The upload is no longer here: choose the picture again.") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        picture = load_image(_open(encoded, limits))
    return LoadedImage(picture.rgb, encoded)


def _open(encoded: bytes, limits: Limits) -> Image.Image:
    """The file's header read, nothing decoded yet."""
    allowed = [name for name in FORMATS if name in _readable()]
    try:
        image = Image.open(io.BytesIO(encoded), formats=allowed)
    except Image.DecompressionBombError:
        raise ImageError(_too_large(limits)) from None
    except UnidentifiedImageError:
        raise ImageError(f"The file is not a picture that can be read: choose a {_NAMES} file.") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise ImageError(f"The picture is damaged: {error}.") from None
    if image.width * image.height > limits.pixels:
        raise ImageError(_too_large(limits, image.size))
    return image


def _readable() -> list[str]:
    """Formats that this build of Pillow can open."""
    Image.init()
    return list(Image.OPEN)


def _too_large(limits: Limits, size: tuple[int, int] | None = None) -> str:
    measure = f"{size[0]} x {size[1]} pixels" if size else "far more pixels"
    return f"The picture has {measure}, and {limits.megapixels:g} megapixels are allowed: scale it down first."
