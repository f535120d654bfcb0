"""Greedy decoding over a cache of fixed size with one CUDA graph per step; without a GPU the same steps are run."""

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
from ercr.trace.graphs import Graph, Graphs
from ercr.trace.greedy import greedy_token

Result = TypeVar("Result")
_LENGTH_STEP = 64  # cache lengths are multiples of this, so that different lengths share a cache
_TOKENS_PER_CHECK = 4  # tokens between two checks whether all answers have ended
_LARGE = 4096  # tokens from which a pass takes longer than its kernel launches
_COMPILED_MODULES = ("MLP", "RMSNorm")  # suffixes of class names of modules that torch.compile fuses
_LOCK_TIMEOUT = 0.2  # seconds between two checks whether a waiting run is cancelled
_MAX_DECODERS = 4  # decoders in the cache: one per batch size and length


class FixedCache(Cache):  # type: ignore[misc]
    """Keys and values at fixed addresses. The prompt attends to itself, later tokens attend to the whole buffers."""

    is_compileable = False  # because the attention mask is passed and not made from the cache

    def __init__(self, depth: int, length: int, device: torch.device) -> None:
        self.layers: list[object] = []
        self.offloading = False
        self.length, self.prompt = length, True
        self.at = torch.zeros(1, dtype=torch.long, device=device)  # position of the next token
        self._keys: list[Any] = [None] * depth
        self._values: list[Any] = [None] * depth

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
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
    """The buffers of one batch size and length, and the CUDA graph of a step over them."""

    cache: FixedCache
    token: Tensor  # [B, 1]
    position: Tensor  # [B, 1]
    mask: Tensor  # [B, 1, 1, length]
    count: Tensor  # [1] tokens generated after the first
    tokens: Tensor  # [B, length]
    states: Tensor  # [B, length, d]
    graph: Graph | None = None


class Compiled:
    """A model's passes and greedy decoding, captured as CUDA graphs when shapes repeat."""

    def __init__(self, adapter: Adapter) -> None:
        if not adapter.steps:
            raise InputError("compile=True needs a family with an adapter of its own; `ercr models` lists them.")
        if len(set((getattr(adapter.model, "hf_device_map", None) or {"": 0}).values())) > 1:
            raise InputError("compile=True needs the whole model on one device: omit device_map.")
        if adapter.model.config._attn_implementation != "sdpa":
            raise InputError("compile=True needs attn_implementation='sdpa', the default of most models.")
        self._adapter = adapter.on_replica()  # because its modules are compiled
        self._lock, self._process = threading.RLock(), os.getpid()
        self.graphs = Graphs(adapter.device)
        if self.graphs.active:
            for module in self._adapter.model.modules():
                if type(module).__name__.endswith(_COMPILED_MODULES):
                    module.compile(dynamic=True)
            self._adapter.fused = True
        self._decoders: OrderedDict[tuple[int, int], _Decoder] = OrderedDict()

    def forward(self, batch: Batch) -> Tensor:
        """Final states [B, L, d] of one pass without a cache."""
        return self._exclusively(lambda: self._pass(batch, None, ("forward",)))

    def generate(self, batch: Batch, limit: int, ends: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tokens [B, T] and the final states [B, L + T - 1, d] of all positions but the last token's."""
        return self._exclusively(lambda: self._generate(batch, limit, ends))

    def _exclusively(self, function: Callable[[], Result]) -> Result:
        """Call the function while no other run uses the buffers and graphs; a cancelled run stops waiting."""
        if self._process != os.getpid():  # the process was forked, perhaps while another thread held the lock
            self._lock, self._process = threading.RLock(), os.getpid()
        lock: Any = self._lock
        try:
            while not lock.acquire(timeout=_LOCK_TIMEOUT):
                check()
            return function()
        finally:
            if lock._is_owned():  # not a with statement, because an interrupt may come between any two steps
                lock.release()

    def _pass(self, batch: Batch, cache: FixedCache | None, kind: tuple[object, ...]) -> Tensor:
        tensors = {f.name: value for f in fields(batch) if isinstance(value := getattr(batch, f.name), Tensor)}
        tensors |= {f"pixels.{name}": value for name, value in batch.pixels.items()}
        # image_grids stay on the CPU and are part of the key
        inputs = {name: value for name, value in tensors.items() if name != "image_grids"}
        grids = () if batch.image_grids is None else tuple(batch.image_grids.flatten().tolist())
        key = (*kind, grids, *((name, tuple(value.shape)) for name, value in inputs.items()))

        def function(**given: Tensor) -> Tensor:
            pixels = {name: given.pop(f"pixels.{name}") for name in batch.pixels}
            now = replace(batch, **given, pixels=pixels)  # type: ignore[arg-type]
            mask = None if now.mask is None else causal_mask(now.mask)
            return self._adapter.read({**self._adapter.decoder_inputs(now), "attention_mask": mask}, cache)

        large = batch.ids.numel() > _LARGE
        return self.graphs.run(key, inputs, function, keep=(batch, cache), large=large)

    def _generate(self, batch: Batch, limit: int, ends: Sequence[int]) -> tuple[Tensor, Tensor]:
        self._check_length(batch.ids.shape[1], limit)
        length = -(-(batch.ids.shape[1] + limit) // _LENGTH_STEP) * _LENGTH_STEP
        decoder = self._decoder(batch, length)
        decoder.cache.prompt = True
        prompt = self._pass(batch, decoder.cache, ("prompt", id(decoder.cache)))
        decoder.cache.prompt = False
        first = greedy_token(self._adapter, prompt)[:, None]
        self._start(decoder, batch, first)
        if decoder.graph is None and self.graphs.active:
            decoder.graph = self.graphs.capture(lambda: self._step(decoder))
            self._start(decoder, batch, first)
        stop = torch.tensor(list(ends), device=first.device, dtype=torch.long)
        count = 1
        while count < limit:
            check()
            for _ in range(min(_TOKENS_PER_CHECK, limit - count)):
                if decoder.graph is None:
                    self._step(decoder)
                else:
                    decoder.graph.replay()
                count += 1
            if len(ends) and bool(torch.isin(decoder.tokens[:, :count], stop).any(1).all()):
                break
        return decoder.tokens[:, :count].clone(), torch.cat([prompt, decoder.states[:, : count - 1]], dim=1)

    def _check_length(self, prompt: int, limit: int) -> None:
        """Refuse an answer that is too long for the model, because its whole cache is allocated in advance."""
        most = getattr(self._adapter.config.get_text_config(), "max_position_embeddings", None)
        if most is not None and prompt + limit > most:
            raise InputError(
                f"With compile=True the whole answer is allocated, and of this model's {most} positions the "
                f"prompt takes {prompt}: max_new_tokens can be at most {max(most - prompt, 0)}, not {limit}."
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
                count=batch.ids.new_zeros(1),
                tokens=batch.ids.new_zeros(rows, length),
                states=torch.zeros(rows, length, int(width), dtype=self._adapter.model.dtype, device=device),
            )
            while len(self._decoders) > _MAX_DECODERS:
                _, oldest = self._decoders.popitem(last=False)
                self.graphs.forget(oldest.cache)  # otherwise the graphs of its prompts would keep the cache in memory
        self._decoders.move_to_end(key)
        return self._decoders[key]

    def _start(self, decoder: _Decoder, batch: Batch, first: Tensor) -> None:
        """Set the buffers to the state after the prompt and the first token."""
        length = batch.ids.shape[1]
        decoder.token.copy_(first)
        decoder.position.copy_(batch.next_positions)
        decoder.cache.at.fill_(length)
        decoder.count.zero_()
        decoder.tokens[:, :1] = first
        decoder.mask.zero_()
        decoder.mask[:, 0, 0, :length] = True if batch.mask is None else batch.mask.bool()

    def _step(self, decoder: _Decoder) -> None:
        """Generate one token for every row without reading anything back from the device."""
        decoder.mask.index_fill_(3, decoder.cache.at, True)
        embeds = self._adapter.model.get_input_embeddings()(decoder.token)
        inputs = {"inputs_embeds": embeds, "position_ids": decoder.position, "attention_mask": decoder.mask}
        states = self._adapter.read(inputs, decoder.cache)
        decoder.states.index_copy_(1, decoder.count, states)
        following = greedy_token(self._adapter, states)[:, None]
        for counter in (decoder.position, decoder.cache.at, decoder.count):
            counter.add_(1)
        decoder.tokens.index_copy_(1, decoder.count, following)
        decoder.token.copy_(following)


def causal_mask(mask: Tensor) -> Tensor:
    """Causal attention mask [B, 1, L, L] with padding; padding attends to itself, so that no row is empty."""
    count = mask.shape[1]
    causal = torch.ones(count, count, dtype=torch.bool, device=mask.device).tril()
    own = torch.eye(count, dtype=torch.bool, device=mask.device)
    return ((causal & mask.bool()[:, None, :]) | own)[:, None]
