"""Greedy decoding over a cache of fixed size, one captured graph per token; off a GPU the same steps simply run."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ercr.errors import InputError
from ercr.models.base import Adapter, Batch
from ercr.trace.cancel import check
from ercr.trace.graphs import Graphs
from ercr.trace.speak import likeliest

Result = TypeVar("Result")
_STEP = 64  # lengths of caches are multiples of this, so that answers of many lengths share one
_ASK = 4  # tokens between two looks at whether all answers have ended
_LARGE = 4096  # tokens from which a pass keeps the device busy for longer than its launches take
_FUSED = ("MLP", "RMSNorm")  # ends of the names of modules that are many small steps in one place
_PATIENCE = 0.2  # seconds between two looks at whether a waiting run is still wanted
_DECODERS = 4  # decoders that are kept: one per batch size and length


class FixedCache(Cache):  # type: ignore[misc]
    """Keys and values in buffers that never move. The prompt is attended to as it is, later tokens to the buffers."""

    is_compileable = False  # masks are given, not made from the cache

    def __init__(self, depth: int, length: int, device: torch.device) -> None:
        self.layers: list[Any] = []
        self.offloading = False
        self.length, self.prompt = length, True
        self.at = torch.zeros(1, dtype=torch.long, device=device)  # where the next token goes
        self._keys: list[Any] = [None] * depth
        self._values: list[Any] = [None] * depth

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        if self._keys[layer_idx] is None:
            for buffers, states in ((self._keys, key_states), (self._values, value_states)):
                buffers[layer_idx] = states.new_zeros(*states.shape[:2], self.length, states.shape[-1])
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        if self.prompt:
            count = key_states.shape[2]
            keys[:, :, :count].copy_(key_states)
            values[:, :, :count].copy_(value_states)
            return key_states, value_states
        keys.index_copy_(2, self.at, key_states)
        values.index_copy_(2, self.at, value_states)
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return query_length, 0


@dataclass
class _Decoder:
    """The buffers of one batch size and length, and the graph of a step over them."""

    cache: FixedCache
    token: Tensor  # [B, 1]
    position: Tensor  # [B, 1]
    mask: Tensor  # [B, 1, 1, length]
    time: Tensor  # [1] tokens said after the first
    said: Tensor  # [B, room]
    states: Tensor  # [B, room, d]
    graph: Any = None


class Compiled:
    """A model's passes and its greedy decoding, captured as they come."""

    def __init__(self, adapter: Adapter) -> None:
        if len(set((getattr(adapter.model, "hf_device_map", None) or {"": 0}).values())) > 1:
            raise InputError("compile=True needs the whole model on one device: leave device_map away.")
        if adapter.model.config._attn_implementation != "sdpa":
            raise InputError("compile=True needs attn_implementation='sdpa', the default of most models.")
        self._adapter = adapter.on_replica()  # what is compiled and captured is not the user's, nor another run's
        self._lock, self._process = threading.RLock(), os.getpid()
        self.graphs = Graphs(adapter.device)
        if self.graphs.active:
            for module in self._adapter.model.modules():
                if type(module).__name__.endswith(_FUSED):
                    module.compile(dynamic=True)
            self._adapter.fused = True
        self._decoders: OrderedDict[Any, _Decoder] = OrderedDict()

    def read(self, batch: Batch) -> Tensor:
        """Final states [B, L, d] of one pass without a cache."""
        return self._alone(lambda: self._pass(batch, None, ("read",)))

    def speak(self, batch: Batch, limit: int, ends: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tokens [B, T] and the final states [B, L + T - 1, d] of all positions but the last token's."""
        return self._alone(lambda: self._speak(batch, limit, ends))

    def _alone(self, function: Callable[[], Result]) -> Result:
        """Buffers and graphs serve one run at a time; a run that is no longer wanted stops waiting for them."""
        if self._process != os.getpid():  # forked, perhaps while another thread held the lock
            self._lock, self._process = threading.RLock(), os.getpid()
        lock: Any = self._lock
        try:
            while not lock.acquire(timeout=_PATIENCE):
                check()
            return function()
        finally:
            if lock._is_owned():  # an interrupt may come between any two steps
                lock.release()

    def _pass(self, batch: Batch, cache: FixedCache | None, kind: tuple[Any, ...]) -> Tensor:
        tensors = {f.name: value for f in fields(batch) if isinstance(value := getattr(batch, f.name), Tensor)}
        tensors |= {f"pixels.{name}": value for name, value in batch.pixels.items()}
        host = {"image_grids"} & set(tensors)
        inputs = {name: value for name, value in tensors.items() if name not in host}
        grids = () if batch.image_grids is None else tuple(batch.image_grids.flatten().tolist())
        key = (*kind, grids, *((name, tuple(value.shape)) for name, value in inputs.items()))

        def function(**given: Tensor) -> Tensor:
            pixels = {name: given.pop(f"pixels.{name}") for name in batch.pixels}
            now = replace(batch, **given, pixels=pixels)  # type: ignore[arg-type]
            mask = None if now.mask is None else square_mask(now.mask)
            return self._adapter.read(self._adapter.embed(now), now.positions, mask, cache)

        large = batch.ids.numel() > _LARGE
        return self.graphs.run(key, inputs, function, keep=(batch, cache), large=large)

    def _speak(self, batch: Batch, limit: int, ends: Sequence[int]) -> tuple[Tensor, Tensor]:
        self._check_length(batch.ids.shape[1], limit)
        length = -(-(batch.ids.shape[1] + limit) // _STEP) * _STEP
        decoder = self._decoder(batch, length)
        decoder.cache.prompt = True
        prompt = self._pass(batch, decoder.cache, ("prompt", id(decoder.cache)))
        decoder.cache.prompt = False
        first = likeliest(self._adapter, prompt)[:, None]
        self._start(decoder, batch, first)
        if decoder.graph is None and self.graphs.active:
            decoder.graph = self.graphs.capture(lambda: self._step(decoder))
            self._start(decoder, batch, first)
        stop = torch.tensor(list(ends), device=first.device, dtype=torch.long)
        said = 1
        while said < limit:
            check()
            for _ in range(min(_ASK, limit - said)):
                if decoder.graph is None:
                    self._step(decoder)
                else:
                    decoder.graph.replay()
                said += 1
            if len(ends) and bool(torch.isin(decoder.said[:, :said], stop).any(1).all()):
                break
        return decoder.said[:, :said].clone(), torch.cat([prompt, decoder.states[:, : said - 1]], dim=1)

    def _check_length(self, prompt: int, limit: int) -> None:
        """Refuse answers that the model has no positions for, because the cache takes its whole length at once."""
        most = getattr(self._adapter.config.get_text_config(), "max_position_embeddings", None)
        if most is not None and prompt + limit > most:
            raise InputError(
                f"With compile=True room is kept for the whole answer, and this model has {most} positions, of which "
                f"{prompt} hold the prompt: max_new_tokens can be at most {max(most - prompt, 0)}, not {limit}."
            )

    def _decoder(self, batch: Batch, length: int) -> _Decoder:
        key = (len(batch.ids), length)
        if key not in self._decoders:
            rows, device = len(batch.ids), batch.ids.device
            width = self._adapter.head.weight.shape[1]  # type: ignore[index]
            self._decoders[key] = _Decoder(
                cache=FixedCache(len(self._adapter.blocks), length, device),
                token=batch.ids.new_zeros(rows, 1),
                position=batch.ids.new_zeros(rows, 1),
                mask=torch.zeros(rows, 1, 1, length, dtype=torch.bool, device=device),
                time=batch.ids.new_zeros(1),
                said=batch.ids.new_zeros(rows, length),
                states=torch.zeros(rows, length, int(width), dtype=self._adapter.model.dtype, device=device),
            )
            while len(self._decoders) > _DECODERS:
                _, oldest = self._decoders.popitem(last=False)
                self.graphs.forget(oldest.cache)  # else its prompts' graphs would keep the cache in memory
        self._decoders.move_to_end(key)
        return self._decoders[key]

    def _start(self, decoder: _Decoder, batch: Batch, first: Tensor) -> None:
        """Everything as it is after the prompt and the first token."""
        count = batch.ids.shape[1]
        decoder.token.copy_(first)
        decoder.position.copy_(batch.next_positions)
        decoder.cache.at.fill_(count)
        decoder.time.zero_()
        decoder.said[:, :1] = first
        decoder.mask.zero_()
        decoder.mask[:, 0, 0, :count] = True if batch.mask is None else batch.mask.bool()

    def _step(self, decoder: _Decoder) -> None:
        """One token for every row; nothing here leaves the device."""
        decoder.mask.index_fill_(3, decoder.cache.at, True)
        embeds = self._adapter.model.get_input_embeddings()(decoder.token)
        states = self._adapter.read(embeds, decoder.position, decoder.mask, decoder.cache)
        decoder.states.index_copy_(1, decoder.time, states)
        following = likeliest(self._adapter, states)[:, None]
        for counter in (decoder.position, decoder.cache.at, decoder.time):
            counter.add_(1)
        decoder.said.index_copy_(1, decoder.time, following)
        decoder.token.copy_(following)


def square_mask(mask: Tensor) -> Tensor:
    """Which position may look at which [B, 1, L, L]; padding looks at itself, so that no row is empty."""
    count = mask.shape[1]
    causal = torch.ones(count, count, dtype=torch.bool, device=mask.device).tril()
    own = torch.eye(count, dtype=torch.bool, device=mask.device)
    return ((causal & mask.bool()[:, None, :]) | own)[:, None]
