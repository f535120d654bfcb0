"""Keys and values of samples that are being answered, in slots, for the model's own modules.

Every sample has a slot whose first place holds its first token, so a new sample can take a slot while others speak.
Slots in use are the first ones: when an answer ends, the last slot moves into its place.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from ercr.models.base import Adapter
from ercr.models.inputs import Batch


class Slots(Protocol):
    """Where the samples that are being answered keep what the decoder has to remember of them."""

    rows: int
    length: int

    def prefill(self, batch: Batch, first: int) -> Tensor:
        """Read prompts into the slots from `first` on: final states [B, L, d]."""

    def step(self, embeds: Tensor, positions: Tensor, at: Tensor, used: int) -> Tensor:
        """Final states [n, 1, d] of a new token in each of the first n slots; `at` [n] are its places."""

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copy some slots over others."""

    def grown(self, length: int) -> Slots:
        """The same slots with more places."""


class ModuleSlots(Cache):  # type: ignore[misc]
    """Slots as the cache of the model's own decoder, which writes and reads them in a step."""

    is_compileable = False  # because the attention mask is passed and not made from the cache

    def __init__(self, own: Adapter, rows: int, length: int) -> None:
        self.layers: list[object] = []
        self.offloading = False
        self.own, self.rows, self.length = own, rows, length
        self._keys: list[Any] = [None] * len(own.blocks)
        self._values: list[Any] = [None] * len(own.blocks)
        self._at = torch.zeros(0)
        self._used = 0

    def prefill(self, batch: Batch, first: int) -> Tensor:
        own, rows, count = self.own, *batch.ids.shape
        cache = DynamicCache(config=own.model.config.get_text_config())
        states = own.read(own.decoder_inputs(batch), cache)
        places = None
        if any(batch.offsets):  # the cache is padded on the left, slots begin with their first token
            offsets = torch.tensor(batch.offsets, device=states.device)[:, None]
            places = (torch.arange(count, device=states.device) + offsets).clamp(max=count - 1)[:, None, :, None]
        for index, layer in enumerate(cache.layers):
            for buffers, found in ((self._keys, layer.keys), (self._values, layer.values)):
                if buffers[index] is None:
                    buffers[index] = found.new_zeros(self.rows, found.shape[1], self.length, found.shape[3])
                if places is not None:
                    found = found.gather(2, places.to(found.device).expand_as(found))
                buffers[index][first : first + rows, :, :count] = found
        return states

    def step(self, embeds: Tensor, positions: Tensor, at: Tensor, used: int) -> Tensor:
        self._at, self._used = at, used
        mask = (torch.arange(used, device=at.device) <= at[:, None])[:, None, None]
        return self.own.read({"inputs_embeds": embeds, "position_ids": positions, "attention_mask": mask}, self)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        rows = len(key_states)
        places = self._at.to(key_states.device)[:, None, None, None].expand_as(key_states)
        found = []
        for buffer, states in ((self._keys[layer_idx], key_states), (self._values[layer_idx], value_states)):
            buffer[:rows].scatter_(2, places, states)
            found.append(buffer[:rows, :, : self._used])
        return found[0], found[1]

    def move(self, sources: Tensor, targets: Tensor) -> None:
        for buffer in (*self._keys, *self._values):
            buffer[targets.to(buffer.device)] = buffer[sources.to(buffer.device)]

    def grown(self, length: int) -> ModuleSlots:
        larger = ModuleSlots(self.own, self.rows, length)
        for index, (keys, values) in enumerate(zip(self._keys, self._values, strict=True)):
            if keys is not None:
                shape = (self.rows, keys.shape[1], length, keys.shape[3])
                larger._keys[index], larger._values[index] = keys.new_zeros(shape), values.new_zeros(shape)
                larger._keys[index][:, :, : self.length] = keys
                larger._values[index][:, :, : self.length] = values
        return larger

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return query_length, 0


def has_plain_cache(adapter: Adapter) -> bool:
    """Whether a model's decoder remembers keys and values of all positions and nothing else, and takes a mask."""
    config = adapter.model.config
    if config._attn_implementation != "sdpa":
        return False
    kinds = {type(layer).__name__ for layer in DynamicCache(config=config.get_text_config()).layers}
    return kinds <= {"DynamicLayer"}
