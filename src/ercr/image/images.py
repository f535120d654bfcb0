"""Loads images of every kind as upright RGB pictures; never runs a model."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, ImageOps, UnidentifiedImageError

from ercr.errors import ImageError
from ercr.files.plain import read_plain
from ercr.image.addresses import download, is_address
from ercr.image.tensors import as_pixels, is_array

# formats of browsers and cameras; Pillow's other decoders are old, rarely used or call other programs (EPS)
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF")
FORMAT_NAMES = "JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF"
MAX_PIXELS = 89_478_485  # Pillow's own warning level: a 256 MB picture
MAX_BYTES = 2**29  # of memory to decode and convert a picture; enough for MAX_PIXELS, except at high bit depths
_STRIP = 2**20  # pixels that are converted at a time
_BITS_PER_SAMPLE = 258  # a tag of TIFF
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

    @property
    def items(self) -> tuple[LoadedImage]:
        """The picture as a list, as several pictures have one."""
        return (self,)

    def sha256(self, pixels: NDArray[np.uint8] | None = None) -> str:
        """Hash of size and pixels, the same for every file format that stores them; `pixels` if they are at hand."""
        if "_hash" not in vars(self):
            found = hashlib.sha256(f"{self.rgb.width}x{self.rgb.height}:".encode())
            found.update(self.rgb.tobytes() if pixels is None else pixels.data)
            vars(self)["_hash"] = found.hexdigest()
        return str(vars(self)["_hash"])

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
        return LoadedImage(_from_pillow(source))
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
        raise ImageError(
            f"{path} is an address, but was given as a file path: give it as a string, or download the image first."
        )
    return read_plain(path, error=ImageError)


@lru_cache(maxsize=1)
def readable_formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this installation can decode."""
    with contextlib.suppress(ImportError):
        from pillow_heif import register_heif_opener

        register_heif_opener(thumbnails=False)
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def open_picture(encoded: bytes, name: str, most: int | None = None) -> Image.Image:
    """Open a picture of an allowed format and size; only its header is read, no pixel is decoded."""
    most = MAX_PIXELS if most is None else most
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(encoded), formats=readable_formats())
        except Image.DecompressionBombError:
            raise ImageError(_too_large(name, most)) from None
        except UnidentifiedImageError:
            raise ImageError(
                f"{name} is not an image, or not a picture that can be read: use {FORMAT_NAMES}."
            ) from None
        # Pillow's plugins raise many kinds of errors for damaged files; all mean the same to a user
        except Exception as error:
            raise ImageError(f"{name} is damaged: {_reason(error)}.") from None
    check_size(image, name, most)
    return image


def check_size(image: Image.Image, name: str, most: int) -> None:
    """Raise if a picture has too many pixels or would need too much memory; called before decoding."""
    if image.width * image.height > most:
        raise ImageError(_too_large(name, most, image.size))
    needed = image.width * image.height * _bytes_per_pixel(image)
    if needed > MAX_BYTES:
        raise ImageError(
            f"{name} would take {needed / 2**20:,.0f} MiB to decode, and {MAX_BYTES // 2**20} are allowed: "
            f"scale it down or save it with 8 bits per channel."
        )


def _bytes_per_pixel(image: Image.Image) -> float:
    """Memory per pixel while decoding and converting: as Pillow stores it, plus RGB where that is a copy."""
    stored = 2 if image.mode.startswith("I;16") else 1 if image.mode in ("1", "L", "P") else 4
    bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (8,))
    unpacked = sum(bits) / 8 if max(bits) > 8 else 0  # TIFF unpacks a strip first, which may be the whole picture
    return stored + unpacked + (0 if image.mode == "RGB" else 4)


def decode(image: Image.Image, name: str) -> Image.Image:
    """The pixels of an opened picture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image.load()
        except Exception as error:
            raise ImageError(f"{name} is damaged or cut short: {_reason(error)}.") from None
    return image


def _decode(encoded: bytes, name: str) -> Image.Image:
    return _to_rgb(_upright(decode(open_picture(encoded, name), name), name), name)


def _from_pillow(image: Image.Image) -> Image.Image:
    """A picture that the caller opened; if it is not decoded yet, format and size are checked first."""
    name = "the image"
    if isinstance(image, ImageFile.ImageFile) and image.tile:
        if image.format not in (*readable_formats(), "MPO"):
            raise ImageError(f"The image is {image.format}, a format that is not supported: use {FORMAT_NAMES}.")
        check_size(image, name, MAX_PIXELS)
    found = _to_rgb(_upright(decode(image, name), name), name)
    return found.copy() if found is image else found


def _too_large(name: str, most: int, size: tuple[int, int] | None = None) -> str:
    measure = f"{size[0]} x {size[1]} pixels" if size else "too many pixels"
    return f"{name} has {measure}, and {most / 1e6:.4g} megapixels are allowed: scale it down first."


def _reason(error: Exception) -> str:
    """A decoder's message as the end of a sentence."""
    said = " ".join(str(error).split()).rstrip(".")
    return said[:200] or type(error).__name__


def _upright(image: Image.Image, name: str) -> Image.Image:
    try:
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) != 1
        return ImageOps.exif_transpose(image) if turned else image
    except Exception as error:
        raise ImageError(f"{name} has damaged EXIF data: {_reason(error)}.") from None


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    """RGB as an image viewer shows it: transparency over white, greyscale of high bit depth scaled, not clipped."""
    if image.width == 0 or image.height == 0:
        raise ImageError(f"{name} is empty.")
    try:
        if image.mode.startswith("I;16") or image.mode in ("I", "F"):
            return _from_high_bit_depth(image)
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            return _over_white(image)
        return image if image.mode == "RGB" else image.convert("RGB")
    except Exception as error:
        raise ImageError(f"{name} cannot be shown in RGB: {_reason(error)}.") from None


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """A picture in strips of a few megabytes, from the top, so that conversions need little memory."""
    rows = max(1, _STRIP // image.width)
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _over_white(image: Image.Image) -> Image.Image:
    whole = Image.new("RGB", image.size)
    for top, strip in _strips(image):
        # Pillow cannot convert this mode to RGBA directly
        layer = (strip.convert("LA") if strip.mode == "La" else strip).convert("RGBA")
        backdrop = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        whole.paste(Image.alpha_composite(backdrop, layer).convert("RGB"), (0, top))
    return whole


def _from_high_bit_depth(image: Image.Image) -> Image.Image:
    """Greyscale of 16 or 32 bits or floats as 8 bits, scaled by the range of its values."""
    top, kind = 0.0, np.dtype(np.uint8)
    for _, strip in _strips(image):
        values = np.asarray(strip)
        top, kind = max(top, float(_numbers(values).max())), values.dtype
    ceiling = 1.0 if kind.kind == "f" and top <= 1.0 else 255.0 if top <= 255.0 else max(65535.0, top)
    # the range of 16-bit files is 65535, whatever their brightest pixel is
    if kind.kind == "u" and kind.itemsize == 2:
        ceiling = 65535.0
    whole = Image.new("RGB", image.size)
    for y, strip in _strips(image):
        grey = np.clip(_numbers(np.asarray(strip)) / ceiling * 255.0 + 0.5, 0, 255).astype(np.uint8)
        whole.paste(Image.fromarray(grey).convert("RGB"), (0, y))
    return whole


def _numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.nan_to_num(values.astype(np.float64))


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
        return _from_high_bit_depth(Image.fromarray(array))
    elif array.dtype != np.uint8:
        raise ImageError(f"An image array must be uint8, or float between 0 and 1, not {array.dtype}.")
    return _to_rgb(Image.fromarray(np.ascontiguousarray(array)), "the array")
