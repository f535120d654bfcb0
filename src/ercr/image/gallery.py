"""Several pictures and clips that are explained together, in the order of their places; reads no file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ercr.image.clips import LoadedClip
from ercr.image.images import LoadedImage


@dataclass(frozen=True)
class Gallery:
    """Several pictures and clips, or one clip. One picture alone is a `LoadedImage`."""

    items: tuple[LoadedImage | LoadedClip, ...]

    @classmethod
    def of(cls, items: Sequence[LoadedImage | LoadedClip]) -> Shown:
        """These pictures and clips; one picture is itself."""
        first = items[0]
        return first if len(items) == 1 and isinstance(first, LoadedImage) else cls(tuple(items))

    def sha256(self) -> str:
        """Hash of all hashes, in their order."""
        return self._hash

    @cached_property
    def _hash(self) -> str:
        return hashlib.sha256(" ".join(item.sha256() for item in self.items).encode()).hexdigest()


Shown = LoadedImage | Gallery
