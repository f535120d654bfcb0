"""What datasets in folders share: files that must be there, label pictures, one clear sentence when they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.errors import ImageError, InputError


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
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}.") from None


def read_labels(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """A label picture (pixel = category id); a missing file counts as one without any object."""
    if not path.exists():
        return np.zeros(size, np.uint8)
    try:
        with Image.open(path) as picture:
            labels = np.asarray(picture)
    except Exception as error:
        raise ImageError(f"The mask {path} is damaged: {error}.") from None
    if labels.ndim != 2:
        raise ImageError(f"The mask {path} must have one channel (pixel = category id), not shape {labels.shape}.")
    return labels.astype(np.uint8)
