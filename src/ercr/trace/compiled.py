"""The passes of compile=True: blocks of few kernels, prompts without padding, and a captured graph for every token.

Decoders of the usual kind run as `models/fused.py` has them; others run their own modules, whose MLPs and norms are
compiled. Without a GPU the same steps are run, uncompiled.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.errors import InputError
from ercr.image.sending import sent
from ercr.models import packed as kernels
from ercr.models.base import Adapter
from ercr.models.fused import FusedDecoder, Packed, fused_decoder
from ercr.models.fused import Slots as Places
from ercr.models.inputs import Batch, CompiledPasses
from ercr.models.packed import fit_tower
from ercr.trace.cancel import check
from ercr.trace.graphs import Graphs
from ercr.trace.slots import ModuleSlots, Slots, has_plain_cache
from ercr.trace.speaking import Speaking

Result = TypeVar("Result")
_COMPILED_MODULES = ("MLP", "RMSNorm")  # suffixes of class names of modules that torch.compile fuses
_MOST_IDLE = 4  # sets of buffers that are kept for other runs: one per number of samples
_LOCK_TIMEOUT = 0.2  # seconds between two checks whether a waiting run is cancelled
# tokens that prompts are padded to in captured passes; a larger pass takes longer than the launches of its kernels
_SIZES = (*range(128, 1025, 128), *range(1280, 2049, 256), *range(2560, 4097, 512))
_FEW = 8  # prompts that a captured pass has room for


class Compiled:
    """A model's passes and greedy decoding, in few kernels; `fuse=False` compiles nothing and captures only steps."""

    def __init__(self, adapter: Adapter, fuse: bool = True) -> None:
        _check(adapter)
        self._adapter = adapter.on_replica()  # because its modules are changed
        self._decoder: FusedDecoder | None = fused_decoder(self._adapter)
        self.packs = self._decoder is not None
        self._lock, self._process = threading.RLock(), os.getpid()
        self._graphs = Graphs(adapter.device)
        self._fuse = fuse and self._graphs.active
        self._idle: list[Speaking] = []
        self.made_of = _made_of(adapter.model)
        if self._adapter.tower is not None and self._graphs.active:
            fit_tower(self._adapter.tower, self._adapter.model.dtype.itemsize == 2, self._fuse)
        if self._fuse:
            self._adapter.graphs = self._graphs
            self._compile()

    def _compile(self) -> None:
        if self._decoder is not None:
            self._decoder.join()
            return
        for module in self._adapter.language_model.modules():
            if type(module).__name__.endswith(_COMPILED_MODULES):
                module.compile(dynamic=True)

    def forward(self, batch: Batch) -> Tensor:
        """Final states [B, L, d] of one pass; where there is padding, zeros."""
        return self.exclusively(lambda: self._forward(batch))

    @torch.no_grad()
    def _forward(self, batch: Batch) -> Tensor:
        inputs = self._adapter.decoder_inputs(batch)
        if self._decoder is None:
            mask = None if batch.mask is None else causal_mask(batch.mask)
            return self._adapter.read({**inputs, "attention_mask": mask})
        return packed(self._decoder, batch, inputs["inputs_embeds"], self._graphs if self._fuse else None)

    def speaking(self, rows: int, limit: int, ends: Sequence[int]) -> Speaking:
        """Decoding of samples that begin and end at different times. Nobody else has it until it is `done`."""
        idle = next((one for one in self._idle if one.rows == rows), None)
        if idle is not None:
            self._idle.remove(idle)
            idle.set_ends(limit, ends)
            return idle
        own, text = self._adapter, self._adapter.config.get_text_config()
        most, graphs = getattr(text, "max_position_embeddings", None), Graphs(own.device)
        return Speaking(own, lambda length: self._slots(rows, length, graphs), rows, limit, ends, graphs, most)

    def done(self, speaking: Speaking) -> None:
        """Keep the buffers and graphs for another run."""
        speaking.drop_all()
        self._idle = [*self._idle, speaking][-_MOST_IDLE:]

    def _slots(self, rows: int, length: int, graphs: Graphs) -> Slots:
        if self._decoder is None:
            return ModuleSlots(self._adapter, rows, length)
        return FusedSlots(self, self._adapter, self._decoder, rows, length, graphs if self._fuse else None)

    def exclusively(self, function: Callable[[], Result]) -> Result:
        """Call the function while no other run uses the graphs; a cancelled run stops waiting."""
        if self._process != os.getpid():  # the process was forked, perhaps while another thread held the lock
            self._lock, self._process = threading.RLock(), os.getpid()
        lock: Any = self._lock
        check()
        try:
            while not lock.acquire(timeout=_LOCK_TIMEOUT):
                check()
            return function()
        finally:
            if lock._is_owned():  # not a with statement, because an interrupt may come between any two steps
                lock.release()


def quick_passes(adapter: Adapter) -> CompiledPasses | None:
    """Those of compile=True if the user asked for it, else, in half precision on a GPU, the same without compiling.

    One kernel then attends to all pictures or prompts of a pass, whatever their lengths. It rounds otherwise than one
    call per picture, as a batch of other pictures does, too.
    """
    if adapter.compiled is not None or adapter.device.type != "cuda" or adapter.model.dtype.itemsize != 2:
        return adapter.compiled
    if adapter.packed_passes is None or adapter.packed_passes.made_of != _made_of(adapter.model):
        try:
            adapter.packed_passes = Compiled(adapter, fuse=False)
        except InputError:  # its reasons are those of compile=True
            return None
    return adapter.packed_passes


def _made_of(model: Any) -> int:
    """Changes when modules or weights of the model are exchanged, by an adapter for instance."""
    return hash((*map(id, model.modules()), *map(id, model.parameters())))


def with_quick_passes(adapter: Adapter) -> Adapter:
    """The adapter with these passes as those that it takes."""
    passes = quick_passes(adapter)
    if passes is adapter.compiled:
        return adapter
    other = copy(adapter)
    other.compiled = passes
    return other


def _check(adapter: Adapter) -> None:
    """Refuse models whose passes cannot run in this way."""
    if not adapter.steps:
        raise InputError("compile=True needs a family with an adapter of its own; `ercr models` lists them.")
    if len(set((getattr(adapter.model, "hf_device_map", None) or {"": 0}).values())) > 1:
        raise InputError("compile=True needs the whole model on one device: omit device_map.")
    if adapter.model.config._attn_implementation != "sdpa":
        raise InputError("compile=True needs attn_implementation='sdpa', the default of most models.")
    if not has_plain_cache(adapter):
        raise InputError("compile=True needs a decoder that attends to all positions: omit it for this model.")


class FusedSlots:
    """Slots of a fused decoder."""

    def __init__(
        self, passes: Compiled, own: Adapter, decoder: FusedDecoder, rows: int, length: int, graphs: Graphs | None
    ) -> None:
        self.rows, self.length = rows, length
        self._passes, self._own, self._decoder, self._graphs = passes, own, decoder, graphs
        self._places = decoder.slots(rows, length)

    def prefill(self, batch: Batch, first: int) -> Tensor:
        """Read prompts into the slots from `first` on: final states [B, L, d]."""

        def read() -> Tensor:
            embeds = self._own.decoder_inputs(batch)["inputs_embeds"]
            return packed(self._decoder, batch, embeds, self._graphs, (self._places, first))

        return self._passes.exclusively(read)

    def step(self, embeds: Tensor, positions: Tensor, at: Tensor, used: int) -> Tensor:
        """Final states [n, 1, d] of a new token in each of the first n slots."""
        turned = self._decoder.axes(positions[:, 0][None])
        return self._decoder.step(embeds[:, 0], turned, self._places, at)[:, None]

    def move(self, sources: Tensor, targets: Tensor) -> None:
        self._places.move(sources, targets)

    def grown(self, length: int) -> FusedSlots:
        larger = FusedSlots(self._passes, self._own, self._decoder, self.rows, length, self._graphs)
        larger._places.take(self._places)
        return larger


def packed(
    decoder: FusedDecoder,
    batch: Batch,
    embeds: Tensor,
    graphs: Graphs | None,
    into: tuple[Places, int] | None = None,
) -> Tensor:
    """Final states [B, L, d] of a left-padded batch, computed without its padding.

    `into` are slots and the first of those that keys and values are written to. With `graphs`, a small pass is padded
    to a common length and captured, so that all prompts of about that length share a graph.
    """
    rows, count = batch.ids.shape
    lengths = torch.tensor([count - offset for offset in batch.offsets])
    edges = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    row = torch.arange(rows).repeat_interleave(lengths)
    place = torch.arange(int(edges[-1])) - edges[row]
    own = torch.tensor(batch.offsets)[row] + row * count + place  # where each token stands in the padded batch
    slots, first = into or (None, 0)
    target = (row + first) * (0 if slots is None else slots.length) + place
    positions, flat = batch.positions.reshape(-1, rows * count), embeds.flatten(0, 1)
    total, device = len(own), embeds.device
    common = next((size for size in _SIZES if size > total), None)
    # only the kernel for packed samples takes a padded row, whose lengths nobody on the host knows
    small = graphs is not None and common is not None and rows <= _FEW and kernels.has_flash(embeds)
    if small:
        assert common is not None
        nowhere = 0 if slots is None else slots.nowhere
        own, target = F.pad(own, (0, common - total)), F.pad(target, (0, common - total), value=nowhere)
        edges = F.pad(edges, (0, _FEW + 1 - rows), value=common)
    own, target = sent(torch.stack([own, target]), device)
    inputs = {
        "x": flat[own],
        "positions": positions[:, own],
        "edges": sent(edges.int(), device),
        "target": target,
    }
    among = (common,) if small else tuple(lengths.tolist())

    def read(x: Tensor, positions: Tensor, edges: Tensor, target: Tensor) -> Tensor:
        to = None if slots is None else (slots, target)
        return decoder.read(x, decoder.axes(positions), Packed(edges, among), to)

    if small:
        assert graphs is not None
        key = ("prompts", common, None if slots is None else id(slots))
        states = graphs.run(key, inputs, read, keep=(slots,))[:total]
    else:
        states = read(**inputs)
    if not any(batch.offsets):
        return states.view(rows, count, -1)
    return states.new_zeros(rows * count, states.shape[-1]).index_copy(0, own[:total], states).view(rows, count, -1)


def causal_mask(mask: Tensor) -> Tensor:
    """Causal attention mask [B, 1, L, L] with padding; padding attends to itself, so that no row is empty."""
    count = mask.shape[1]
    causal = torch.ones(count, count, dtype=torch.bool, device=mask.device).tril()
    own = torch.eye(count, dtype=torch.bool, device=mask.device)
    return ((causal & mask.bool()[:, None, :]) | own)[:, None]
