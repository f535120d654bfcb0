"""How strongly pictures usually spell each word of one model's vocabulary, whatever they show; plain data.

Visual tokens spell some words more than others in every picture: "man" and "dog" more than "zebra" if people and dogs
were most of what a model learnt from. A word says little of a picture that spells it no more than others do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Floats

_OFTEN = 0.9  # share of the pictures; the highest of all would depend on how many there are
_STEPS = 12  # per standard deviation, each number in one byte: up to ten of them


@dataclass(frozen=True, eq=False)
class Usual:
    """What the lens reads of every token in pictures that have nothing to do with it, in standard deviations."""

    size: Floats  # [V] the highest logit at any visual token, which a tenth of the pictures exceeds
    mean: Floats  # [V] the mean logit of all visual tokens of all pictures

    @classmethod
    def of(cls, sizes: Floats, means: Floats) -> Usual:
        """From the highest and the mean logits [pictures, V] in some pictures."""
        return cls(np.quantile(sizes, _OFTEN, axis=0), means.mean(0))

    def __len__(self) -> int:
        return len(self.size)

    def save(self, path: Path) -> None:
        np.savez_compressed(path, size=_in_bytes(self.size), mean=_in_bytes(self.mean))

    @classmethod
    def load(cls, file: Any) -> Usual:
        """From a path or an open file; `ValueError` or `KeyError` if it is no such table."""
        with np.load(file, allow_pickle=False) as found:
            columns = [found[column.name].astype(np.float64) / _STEPS for column in fields(cls)]
        if len({column.shape for column in columns}) != 1 or columns[0].ndim != 1:
            raise ValueError("it has not two numbers for each token")
        return cls(*columns)


def _in_bytes(values: Floats) -> NDArray[np.int8]:
    return np.clip(np.round(values * _STEPS), -128, 127).astype(np.int8)
