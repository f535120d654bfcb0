"""The same words under changed pictures: log-probabilities of prompt and answer when another picture is shown.

A method that hides parts of a picture asks for it (`Needs(changed=True)`). A changed picture has the size of the
original one, so that nothing but its numbers differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import torch
from PIL import Image
from torch import Tensor

from ercr.errors import InputError
from ercr.models.base import Adapter, Prepared
from ercr.trace.memory import in_halves
from ercr.trace.scoring import log_probabilities

_PICTURES = 16  # in a pass


class ChangedPictures:
    """One sample's picture, and what its words' probabilities become when another one is shown instead."""

    def __init__(self, adapter: Adapter, image: Image.Image, prompt: Prepared, answer: Tensor, rows: Tensor) -> None:
        """`rows` are the positions of the text tokens in prompt and answer."""
        self.image = image
        self._adapter = adapter.for_bulk
        self._prompt, self._answer, self._rows = prompt, answer, rows
        self._at_once = _PICTURES

    @property
    def neutral(self) -> tuple[int, int, int]:
        """The colour that the image processor turns into zeros."""
        return self._adapter.neutral_colour

    def log_probabilities(self, pictures: Iterable[Image.Image]) -> Tensor:
        """Log-probabilities [pictures, S] of all text tokens; pictures are taken a few at a time."""
        coming, found = iter(pictures), list[Tensor]()
        while batch := list(islice(coming, self._at_once)):
            found += in_halves(self._scored, batch, self._smaller)
        return torch.stack(found)

    def _scored(self, pictures: Sequence[Image.Image]) -> list[Tensor]:
        shown = [self._showing(picture) for picture in pictures]
        return list(log_probabilities(self._adapter, shown, self._answer, self._rows))

    def _showing(self, picture: Image.Image) -> Prepared:
        if picture.size != self.image.size:
            raise InputError(f"A changed picture must have the size of the original one, not {picture.size}.")
        return replace(self._prompt, pixels={**self._prompt.pixels, **self._adapter.pixels_of(picture)})

    def _smaller(self, half: int) -> None:
        self._at_once = max(1, min(self._at_once, half))
