"""What datasets in folders share: files that must be there, label pictures, one clear sentence when they are not."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.datasets.sample import Masks
from ercr.errors import ImageError, InputError
from ercr.images import MAX_PIXELS


def require(root: str, files: tuple[str, ...], layout: str) -> Path:
    """The folder, if it holds all the files; else an error that shows how it should look."""
    folder = Path(root).expanduser()
    if not root or not folder.is_dir():
        raise InputError(f"There is no folder {root!r}: it should look like {layout}.")
    missing = [name for name in files if not (folder / name).exists()]
    if missing:
        raise InputError(f"{folder} has no {', no '.join(missing)}: it should look like {layout}.")
    return folder


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}.") from None


def digest(*files: Path) -> str:
    """A hash of the files' bytes."""
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()


def category_id(value: Any) -> int:
    """A category's number as the label pictures can hold it; ValueError for anything else."""
    if isinstance(value, bool) or not 0 <= int(value) <= 255:
        raise ValueError(f"{value!r} is not a category id between 0 and 255")
    return int(value)


def read_labels(path: Path, masks: Masks = "ids") -> NDArray[np.uint8] | None:
    """A label picture (pixel = category id); None where the file is missing."""
    if not path.exists():
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImageError(f"The mask {path} is damaged: {error}.") from None
    return decode_labels(data, str(path), masks)


def decode_labels(data: bytes, name: str, masks: Masks) -> NDArray[np.uint8]:
    """A label picture from its file's bytes: the ids as they are stored, or the grey values that OpenCV makes of it."""
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise ValueError(f"it claims {picture.width} x {picture.height} pixels")
            labels = _grey(data) if masks == "grey" else np.asarray(picture)
    # decoders raise many kinds of error on damaged files; all mean the same to a user
    except Exception as error:
        raise ImageError(f"The mask {name} is damaged: {error}.") from None
    if labels.ndim != 2 or labels.dtype.kind not in "bui":
        raise ImageError(f"The mask {name} must have one channel (pixel = category id), not shape {labels.shape}.")
    if labels.min(initial=0) < 0 or labels.max(initial=0) > 255:
        raise ImageError(f"The mask {name} holds ids outside 0 to 255.")
    return labels.astype(np.uint8)


def _grey(data: bytes) -> NDArray[np.uint8]:
    import cv2

    grey: NDArray[np.uint8] | None = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    if grey is None:
        raise ValueError("OpenCV cannot read it")
    return grey
