"""Helpers for datasets in folders: required files, annotations and label pictures."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.datasets.sample import Masks
from ercr.errors import ImageError, InputError
from ercr.files.plain import read_plain
from ercr.image.images import decode, open_picture

_LONGEST_NAME = 1000  # characters
_MOST_ANNOTATIONS = 2**30  # bytes; the largest file of COCO has half as many


def require(root: str, files: tuple[str, ...], layout: str) -> Path:
    """The folder, if it holds all the files; else an error that describes the layout."""
    folder = Path(root).expanduser()
    if not root or not folder.is_dir():
        raise InputError(f"There is no folder {root!r}: it should look like {layout}.")
    missing = [name for name in files if not (folder / name).exists()]
    if missing:
        raise InputError(f"{folder} has no {', no '.join(missing)}: it should look like {layout}.")
    return folder


def inside(root: Path, name: str) -> Path:
    """The file that an annotation names, which must be inside the folder.

    Links in the folder belong to the user and may lead to regular files anywhere.
    """
    parts = name.replace("\\", "/").split("/")
    if not 0 < len(name) <= _LONGEST_NAME or "\0" in name or ".." in parts or not parts[0] or ":" in parts[0]:
        raise InputError(f"The annotations name the file {name[:200]!r}, which does not lie in {root}.")
    return root / name


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_plain(path, _MOST_ANNOTATIONS).decode("utf-8"))
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be a file of annotations.") from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path} cannot be read as JSON: {error}.") from None


def digest(*files: Path) -> str:
    """A hash of the files' bytes."""
    found = hashlib.sha256()
    for file in files:
        found.update(read_plain(file, _MOST_ANNOTATIONS))
    return found.hexdigest()


def category_id(value: Any) -> int:
    """A category id from 0 to 255, the range of label pictures; ValueError for anything else."""
    if isinstance(value, bool) or not 0 <= int(value) <= 255:
        raise ValueError(f"{value!r} is not a category id between 0 and 255")
    return int(value)


def read_labels(path: Path, masks: Masks = "ids") -> NDArray[np.uint8] | None:
    """A label picture (pixel = category id); None where the file is missing."""
    if not os.path.exists(path):  # False also for an invalid file name
        return None
    return decode_labels(read_plain(path, error=ImageError), str(path), masks)


def decode_labels(data: bytes, name: str, masks: Masks) -> NDArray[np.uint8]:
    """A label picture from its file's bytes: the ids as they are stored, or the grey values that OpenCV makes of it."""
    try:
        picture = open_picture(data, "it")
        labels = _grey(data) if masks == "grey" else np.asarray(decode(picture, "it"))
    except ImageError as error:
        raise ImageError(f"The mask {name} is damaged: {error}") from None
    if labels.ndim != 2 or labels.dtype.kind not in "bui":
        raise ImageError(f"The mask {name} must have one channel (pixel = category id), not shape {labels.shape}.")
    if labels.min(initial=0) < 0 or labels.max(initial=0) > 255:
        raise ImageError(f"The mask {name} holds ids outside 0 to 255.")
    return labels.astype(np.uint8)


def _grey(data: bytes) -> NDArray[np.uint8]:
    import cv2

    try:
        grey: NDArray[np.uint8] | None = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    except cv2.error:
        grey = None
    if grey is None:
        raise ImageError("OpenCV cannot read it.")
    return grey
