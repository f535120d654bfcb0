"""Pictures and clips in saved explanations: their files' bytes as arrays, and a header that says what each one is.

A picture is stored as its own file. The frames of a clip are stored without loss up to a total size, and beyond it as
photographs are, because a video file is not exact either.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from ercr.errors import FileFormatError
from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.image.gallery import Gallery, Shown
from ercr.image.images import LoadedImage, load_image

LOSSLESS = 2**25  # pixels of all frames of a clip that are stored exactly
_QUALITY = 90


def to_arrays(shown: Shown) -> tuple[dict[str, NDArray[np.uint8]], list[dict[str, Any]] | None]:
    """The arrays of what is shown, and its header; one picture has none."""
    if isinstance(shown, LoadedImage):
        return {"image": _bytes(shown.to_bytes())}, None
    arrays, header = {}, list[dict[str, Any]]()
    for at, item in enumerate(shown.items):
        if isinstance(item, LoadedImage):
            encoded, described = [item.to_bytes()], dict[str, Any](kind="picture")
        else:
            exact = len(item.frames) * item.size[0] * item.size[1] <= LOSSLESS
            encoded = [_encoded(frame, exact) for frame in item.frames]
            described = {
                "kind": "clip",
                "exact": exact,
                "indices": list(item.indices),
                "of": item.facts.frames,
                "fps": item.facts.fps,
                "bytes": [len(frame) for frame in encoded],
            }
        arrays[f"image.{at}"] = _bytes(b"".join(encoded))
        header.append(described)
    return arrays, header


def from_arrays(header: Sequence[Mapping[str, Any]] | None, arrays: Mapping[str, NDArray[Any]]) -> Shown:
    """Read what `to_arrays` made."""
    if header is None:
        return load_image(arrays["image"].tobytes())
    return Gallery(tuple(_item(described, arrays[f"image.{at}"].tobytes()) for at, described in enumerate(header)))


def names(header: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """The names of the arrays that hold pictures."""
    return ["image"] if header is None else [f"image.{at}" for at in range(len(header))]


def _item(described: Mapping[str, Any], data: bytes) -> LoadedImage | LoadedClip:
    if described["kind"] == "picture":
        return load_image(data)
    borders = [0, *accumulate(described["bytes"])]
    if borders[-1] != len(data) or len(described["bytes"]) != len(described["indices"]):
        raise FileFormatError("the frames of a clip do not match its header")
    frames = [load_image(data[start:stop]).rgb for start, stop in pairwise(borders)]
    if len({frame.size for frame in frames}) != 1:
        raise FileFormatError("the frames of a clip have different sizes")
    facts = Facts(described["of"], float(described["fps"]), (frames[0].height, frames[0].width))
    return LoadedClip(tuple(frames), tuple(described["indices"]), facts)


def _encoded(frame: Image.Image, exact: bool) -> bytes:
    buffer = io.BytesIO()
    if features.check("webp"):
        frame.save(buffer, "WEBP", lossless=exact, quality=0 if exact else _QUALITY, method=0 if exact else 4)
    else:
        frame.save(buffer, "PNG" if exact else "JPEG", **({} if exact else {"quality": _QUALITY}))
    return buffer.getvalue()


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)
