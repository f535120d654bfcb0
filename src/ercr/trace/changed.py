"""The same words under changed pictures: log-probabilities of prompt and answer when another picture is shown.

A method that hides parts of a picture or a clip asks for it (`Needs(changed=True)`). A changed picture has the size of
the original one, so that nothing but its numbers differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.image.clips import LoadedClip
from ercr.models.base import Adapter
from ercr.models.inputs import Media, Medium, Prepared, as_media
from ercr.trace.memory import in_halves
from ercr.trace.scoring import log_probabilities

_PICTURES = 16  # in a pass


class ChangedPictures:
    """What one sample shows, and what its words' probabilities become when something else is shown instead."""

    def __init__(self, adapter: Adapter, media: Media, prompt: Prepared, answer: Tensor, rows: Tensor) -> None:
        """`rows` are the positions of the text tokens in prompt and answer."""
        self.media = tuple(as_media(media))
        self._adapter = adapter.for_bulk
        self._prompt, self._answer, self._rows = prompt, answer, rows
        self._at_once = _PICTURES

    @property
    def neutral(self) -> tuple[int, int, int]:
        """The colour that the image processor turns into zeros."""
        return self._adapter.neutral_colour

    def log_probabilities(self, changed: Iterable[tuple[int, Medium]]) -> Tensor:
        """Log-probabilities [changes, S] of all text tokens; a change is a piece's index and what stands for it."""
        coming, found = iter(changed), list[Tensor]()
        while batch := list(islice(coming, self._at_once)):
            found += in_halves(self._scored, batch, self._smaller)
        return torch.stack(found)

    def _scored(self, changed: Sequence[tuple[int, Medium]]) -> list[Tensor]:
        shown = [self._showing(*change) for change in changed]
        return list(log_probabilities(self._adapter, shown, self._answer, self._rows))

    def _showing(self, piece: int, medium: Medium) -> Prepared:
        if _shape(medium) != _shape(self.media[piece]):
            raise InputError(f"A changed picture must have the size of the original one, not {medium.size}.")
        media = self._adapter.uploaded((*self.media[:piece], medium, *self.media[piece + 1 :]))
        return replace(self._prompt, pixels={**self._prompt.pixels, **self._adapter.pixels_of(media, self._prompt)})

    def _smaller(self, half: int) -> None:
        self._at_once = max(1, min(self._at_once, half))


def _shape(medium: Medium) -> tuple[int, ...]:
    return (len(medium.frames), *medium.size) if isinstance(medium, LoadedClip) else medium.size
