"""The one sample type that every dataset yields; it never reads a file or runs a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image


@dataclass(frozen=True)
class Sample:
    """A picture with its question, the category of every pixel (0 is background) and reference captions."""

    id: str
    image: Image.Image
    prompt: str
    labels: NDArray[np.uint8]  # [H, W]
    categories: Mapping[int, str]
    references: tuple[str, ...]
