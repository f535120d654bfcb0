"""What a model is given: a conversation with its pictures, prepared; batches of them; views. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch
from PIL import Image
from torch import Tensor

from ercr.image.clips import LoadedClip
from ercr.image.pieces import AnyGeometry
from ercr.models.chat import Message

ViewKind = Literal["pad", "interpolate"]
Inputs = dict[str, Any]  # keyword arguments of the decoder
Picture = Any  # a picture of Pillow's, or one that lies on the device, for an adapter that takes those
Medium = Image.Image | LoadedClip
Media = Medium | Sequence[Medium]  # one picture, or several pictures and clips in the order of their places


@dataclass(frozen=True)
class Prepared:
    """The model's inputs for one conversation and its pictures, on the CPU, with the positions of the visual tokens."""

    input_ids: Tensor  # [L]
    pixels: dict[str, Tensor]  # the family's own inputs of pictures and clips, each joined along its first axis
    geometry: AnyGeometry
    visual: Tensor  # [N] positions of the visual tokens in `input_ids`, in the geometry's order
    prompt: Tensor  # [P] positions of the conversation's own text: no template, no system message
    beside: dict[str, Tensor] = field(default_factory=dict)  # [L] further inputs that have one number per token
    behind: dict[str, int] = field(default_factory=dict)  # what these are for a token of the answer
    messages: tuple[Message, ...] = ()  # the conversation, if a view of the picture has to encode it anew

    @property
    def cells(self) -> bool:
        """Whether there are visual tokens with a place on the picture."""
        return len(self.visual) > 0

    def with_answer(self, answer: Tensor) -> Prepared:
        """The same inputs with the tokens of an answer after the prompt."""
        beside = {
            name: torch.cat([values, values.new_full(answer.shape, self.behind[name])])
            for name, values in self.beside.items()
        }
        return replace(self, input_ids=torch.cat([self.input_ids, answer]), beside=beside)


@dataclass(frozen=True)
class Batch:
    """Left-padded inputs of several samples on the model's device."""

    ids: Tensor  # [B, L]
    mask: Tensor | None  # [B, L], or None where nothing is padded
    positions: Tensor  # rotary positions [B, L] or [3, B, L]
    next_positions: Tensor  # [B, 1] rotary position of the first token after the prompt
    image_positions: Tensor  # flat positions in [B * L] that take the image features, in their order
    pixels: dict[str, Tensor]
    image_grids: (
        Tensor | None
    )  # [n, 3] patches of each picture, then of each clip, if the family packs them; on the CPU
    tower_inputs: Any  # what the vision tower of such a family derives from these grids
    offsets: tuple[int, ...]  # where each sample begins, after its padding
    features: Tensor | None = None  # [N, d] the image features, if they are known from an earlier pass


class CompiledPasses(Protocol):
    """The passes of compile=True; `trace/compiled.py` has them."""

    packs: bool  # whether samples of any lengths share a pass without padding
    made_of: int  # changes with the model's modules and weights

    def forward(self, batch: Batch) -> Tensor:
        """Final states [B, L, d] of one pass."""

    def speaking(self, rows: int, limit: int, ends: Sequence[int]) -> Any:
        """Greedy decoding of samples that begin and end at different times, as `trace/speaking.py` has it."""

    def done(self, speaking: Any) -> None:
        """Take back what `speaking` gave, for another run."""


def as_media(media: Media) -> Sequence[Medium]:
    """Pictures and clips as a list, also where one picture is given."""
    return media if isinstance(media, list | tuple) else (media,)


def joined_pixels(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Inputs of several pictures and clips, each joined along its first axis."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: torch.cat([torch.as_tensor(part[name]) for part in parts if name in part]) for name in names}


def padded(samples: Sequence[Prepared], pad_id: int) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Left-padded token ids [B, L], the attention mask [B, L], and the padding before each sample."""
    longest = max(len(sample.input_ids) for sample in samples)
    offsets = tuple(longest - len(sample.input_ids) for sample in samples)
    ids = torch.full((len(samples), longest), pad_id)
    mask = torch.ones_like(ids)
    for row, (sample, offset) in enumerate(zip(samples, offsets, strict=True)):
        ids[row, offset:] = sample.input_ids
        mask[row, :offset] = 0
    return ids, mask, offsets
