"""What the model could have said instead, with maps, and the difference of two words' evidence; plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Floats


@dataclass(frozen=True, eq=False)
class Alternatives:
    """Tokens that could have stood in the place of each token of the answer, by its row."""

    first: int  # the row of the answer's first token
    ids: NDArray[np.int64]  # [R, C]
    texts: tuple[tuple[str, ...], ...]  # [R, C]
    maps: Floats  # [R, C, h, w], 0..1
    strength: Floats  # [R, C] highest value before stretching, in the method's unit

    def find(self, row: int, text: str) -> int | None:
        """The column of a token of a row: the one with this text, any case, without white space around it."""
        wanted = text.strip().lower()
        own = [known.strip().lower() for known in self.texts[row - self.first]]
        same = [at for at, known in enumerate(own) if known == wanted]
        # a longer word begins with its first token
        begins = [at for at, known in enumerate(own) if known and wanted.startswith(known)]
        return next(iter(same + sorted(begins, key=lambda at: -len(own[at]))), None)


@dataclass(frozen=True)
class Contrast:
    """Where the evidence for one word is stronger than for another at the same place of the answer, and where weaker.

    Both words' maps are in the method's unit before they are subtracted; 1 is the stronger one's highest value.
    """

    word: str
    other: str
    map: Floats = field(repr=False)  # [h, w], -1..1: above 0 speaks for the word, below 0 for the other one
    strength: float  # of the word, in the method's unit
    other_strength: float


def contrast(word: str, map_: Floats, strength: float, other: str, its: Floats, its_strength: float) -> Contrast:
    """The difference of two maps, each scaled so that its peak is its strength."""
    top = max(strength, its_strength)
    ours, theirs = (
        values * (size / peak if (peak := float(values.max(initial=0.0))) > 0 else 0.0)
        for values, size in ((map_, strength), (its, its_strength))
    )
    difference = (ours - theirs) / top if top > 0 else np.zeros_like(map_)
    return Contrast(word, other, np.asarray(np.clip(difference, -1, 1), np.float32), strength, its_strength)
