"""The door for images: whatever comes in leaves as one upright RGB picture; never touches a model."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ercr.addresses import download, is_address
from ercr.errors import ImageError
from ercr.tensors import as_pixels, is_array

MAX_PIXELS = 89_478_485  # Pillow's own warning level: a 256 MB picture
ImageLike = Any  # path, address, bytes, PIL image, array or tensor: checked at run time, with a readable error


@dataclass(frozen=True)
class LoadedImage:
    """An upright RGB picture and, where it came from a file, the bytes it was read from."""

    rgb: Image.Image
    encoded: bytes | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.rgb.height, self.rgb.width

    def sha256(self) -> str:
        """Hash of size and pixels, the same for every file format that stores them."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        header = f"{self.rgb.width}x{self.rgb.height}:".encode()
        return hashlib.sha256(header + self.rgb.tobytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The file's own bytes, or a lossless PNG of an image that never was a file."""
        if self.encoded is not None:
            return self.encoded
        buffer = io.BytesIO()
        self.rgb.save(buffer, format="PNG")
        return buffer.getvalue()


def load_image(source: ImageLike) -> LoadedImage:
    """Open a path, an http(s) address, bytes, a PIL image, a uint8/float array or tensor (channels first or last).

    Orientation from EXIF is applied here and nowhere else.
    """
    if isinstance(source, LoadedImage):
        return source
    if isinstance(source, Image.Image):
        try:
            source.load()
        except Exception as error:
            raise ImageError(f"The image is damaged or cut short: {error}.") from None
        return LoadedImage(_to_rgb(_upright(source, "the image"), "the image"))
    if is_array(source):
        return LoadedImage(_from_array(as_pixels(source)))
    if isinstance(source, bytes | bytearray):
        return LoadedImage(_decode(bytes(source), "the image bytes"), bytes(source))
    if isinstance(source, str) and is_address(source):
        encoded = download(source)
        return LoadedImage(_decode(encoded, source), encoded)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        encoded = _read(path)
        return LoadedImage(_decode(encoded, str(path)), encoded)
    kinds = "a path, bytes, an http address, a PIL image, an array or a tensor"
    raise ImageError(f"An image must be {kinds}, not {type(source).__name__}.")


def _read(path: Path) -> bytes:
    if str(path).startswith(("http:/", "https:/")):
        raise ImageError(f"{path} is an address in the place of a file: give it as text, or download the image first.")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ImageError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise ImageError(f"{path} is a folder, not an image.") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror or error}.") from None


def _decode(encoded: bytes, name: str) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            image = Image.open(io.BytesIO(encoded))
        except Image.DecompressionBombError:
            raise ImageError(_too_large(name)) from None
        except UnidentifiedImageError:
            raise ImageError(f"{name} is not an image that Pillow can read.") from None
        except (OSError, SyntaxError, ValueError) as error:
            raise ImageError(f"{name} is damaged: {error}.") from None
        if image.width * image.height > MAX_PIXELS:
            raise ImageError(_too_large(name, image.size))
        try:
            image.load()
        # Pillow's decoders raise many kinds of error on damaged files; all mean the same to a user.
        except Exception as error:
            raise ImageError(f"{name} is damaged or cut short: {error}.") from None
    return _to_rgb(_upright(image, name), name)


def _too_large(name: str, size: tuple[int, int] | None = None) -> str:
    measure = f" has {size[0]} x {size[1]} pixels, which" if size else ""
    return f"{name}{measure} is more than the {MAX_PIXELS:,} pixels allowed: scale it down first."


def _upright(image: Image.Image, name: str) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception as error:
        raise ImageError(f"{name} has damaged EXIF data: {error}.") from None


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    """RGB as a viewer would see it: transparency over white, deep greyscale scaled instead of clipped."""
    if image.width == 0 or image.height == 0:
        raise ImageError(f"{name} is empty.")
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        return _from_deep(np.asarray(image))
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        layer = image.convert("RGBA")
        backdrop = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        return Image.alpha_composite(backdrop, layer).convert("RGB")
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _from_deep(values: NDArray[Any]) -> Image.Image:
    """Greyscale of 16 or 32 bits or floats to 8 bits, by the range its numbers are in."""
    levels = np.nan_to_num(values.astype(np.float64))
    top = levels.max(initial=0.0)
    ceiling = 1.0 if values.dtype.kind == "f" and top <= 1.0 else 255.0 if top <= 255.0 else max(65535.0, top)
    # 16-bit files count to 65535 whatever their brightest pixel is
    if values.dtype == np.uint16:
        ceiling = 65535.0
    grey = np.clip(levels / ceiling * 255.0 + 0.5, 0, 255).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def _from_array(array: NDArray[Any]) -> Image.Image:
    if array.size == 0 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        raise ImageError(f"An image array must be [H, W], [H, W, 3] or [H, W, 4], not {list(array.shape)}.")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or array.min() < 0 or array.max() > 1:
            raise ImageError("A float image array must hold finite values between 0 and 1.")
        array = np.round(array * 255).astype(np.uint8)
    elif array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    elif array.dtype == np.uint16 and array.ndim == 2:
        return _from_deep(array)
    elif array.dtype != np.uint8:
        raise ImageError(f"An image array must be uint8, or float between 0 and 1, not {array.dtype}.")
    return _to_rgb(Image.fromarray(np.ascontiguousarray(array)), "the array")
