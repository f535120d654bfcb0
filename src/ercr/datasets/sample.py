"""`Sample`, the type that every dataset yields, and `Samples`, their base class; reads no file, runs no model."""

from __future__ import annotations

import copy
import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ercr.image.clips import LoadedClip

Labels = NDArray[np.uint8]
Masks = Literal["ids", "grey"]
PROMPT = "Write a one-sentence caption for this image:"  # default for pictures with captions


@dataclass(frozen=True)
class Sample:
    """A picture with its prompt, the category of every pixel (0 is background) and reference captions.

    A sample of several pictures, or of a clip, has a tuple of them and a tuple of labels.
    """

    id: str
    image: Image.Image | tuple[Image.Image | LoadedClip, ...]
    prompt: str
    labels: Labels | tuple[Labels, ...] | None  # [H, W], of a clip [frames, H, W]; None without a label picture
    categories: Mapping[int, str] | Sequence[tuple[int, str]]  # pairs if an id has several names
    references: tuple[str, ...]


class Samples(Sequence[Sample]):
    """A dataset; each sample is made on access."""

    masks: Masks = "ids"  # how label pictures are read: `ercr.datasets.folder.decode_labels`

    def reading(self, masks: Masks) -> Self:
        """A copy of the dataset that reads label pictures in this way."""
        other = copy.copy(self)
        other.masks = masks
        return other

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def sample(self, index: int) -> Sample:
        """The sample at an index from 0 on."""

    def name(self, index: int) -> str:
        """The id of a sample without reading it, so that damaged samples have one, too."""
        return str(index)

    def fingerprint(self, count: int) -> str:
        """A hash that changes when the first `count` samples change; pictures count by name only."""
        names = "\n".join(self.name(index) for index in range(count))
        return hashlib.sha256(names.encode("utf-8", "replace")).hexdigest()

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.sample(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"There is no sample {index}: the dataset has {len(self)}.")
        return self.sample(index % len(self))


def all_labels(sample: Sample) -> Labels | None:
    """The labels of all pixels of a sample: those of several pictures and clips as one row."""
    if isinstance(sample.labels, tuple):
        return np.concatenate([labels.ravel() for labels in sample.labels])[None]
    return sample.labels


def first_picture(sample: Sample) -> Image.Image:
    """A sample's picture, or the first of several, or the first frame of a clip."""
    first = sample.image[0] if isinstance(sample.image, tuple) else sample.image
    return first.frames[0] if isinstance(first, LoadedClip) else first
