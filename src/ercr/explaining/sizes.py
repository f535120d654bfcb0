"""How many samples share a pass: given, or found from the memory that the first ones take; halved when it runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch

from ercr.errors import InputError
from ercr.models.base import Adapter
from ercr.trace.memory import in_halves

Item = TypeVar("Item")
Result = TypeVar("Result")
BatchSize = int | Literal["auto"]
_TRIAL = 8  # samples of the first pass, from whose memory the number of the others is computed
_MOST = 256  # samples of a batch
_MOST_SPEAKING = 128  # samples that are answered at the same time
_ON_CPU = 8
_SHARE = 0.7  # of the free memory that a batch may take
_SLOTS_SHARE = 0.3  # of the free memory that the slots of those that speak may take
_FEW = 8  # samples of a pass, of those that are answered at the same time, at least
_PARTS = 4  # passes in which all that are answered at the same time begin
_ANSWER = 64  # places that a slot has for an answer at first


class Sizes:
    """The batch size: computed from the free memory, and halved when memory runs out.

    Pass the same object to several calls of an explainer's methods to keep the size that was found.
    """

    def __init__(self, size: BatchSize, adapter: Adapter) -> None:
        if size != "auto" and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InputError(f"batch_size must be a whole number of at least 1, or 'auto', not {size!r}.")
        self._adapter, self._device = adapter, adapter.device
        self._trial = size == "auto" and self._device.type == "cuda"
        self._rows: int | None = None
        # most samples of the next pass while passes still grow: each is twice as large as the one before, so that the
        # device need not wait long for the first
        self._next: int | None = 2 * _TRIAL if self._trial else None
        self.size = _TRIAL if self._trial else _ON_CPU if size == "auto" else int(size)

    def run(self, function: Callable[[Sequence[Item]], list[Result]], batch: Sequence[Item]) -> list[Result]:
        """Call the function with a batch; if memory runs out, with its halves, and keep later batches that small."""
        return in_halves(lambda part: self.measured(lambda: function(part), len(part)), batch, self.smaller)

    @property
    def chunk(self) -> int:
        """How many samples begin together while others are being answered."""
        if self._trial:
            return self.size
        most = self._rows or self.size
        whole = max(1, min(self.size, max(-(-most // _PARTS), min(most, _FEW))))
        return whole if self._next is None else min(whole, self._next)

    def rows(self, length: int) -> int:
        """How many samples are answered at the same time, if their prompts have about this length."""
        if self._rows is None:
            self._rows = self._possible(length) if self._trial else self.size
        return self._rows

    def measured(self, function: Callable[[], Result], count: int) -> Result:
        """The result of a pass over `count` samples; the memory of the first pass decides how large the others are."""
        if not self._trial:
            if self._next is not None:
                self._next = None if 2 * self._next >= self.size else 2 * self._next
            return function()
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        result = function()
        self._set_size((torch.cuda.max_memory_allocated(self._device) - before) / count)
        return result

    def smaller(self, half: int) -> None:
        """No more than `half` samples from now on."""
        self._trial, self.size = False, max(1, min(self.size, half))
        self._rows = None if self._rows is None else max(1, min(self._rows, half))

    def _free(self) -> float:
        free, _ = torch.cuda.mem_get_info(self._device)
        return float(free + torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device))

    def _set_size(self, each: float) -> None:
        """Set the size from the memory that one sample of the first batch took."""
        self._trial = False
        self.size = _power(min(_MOST, _SHARE * self._free() / max(each, 1.0)))

    def _possible(self, length: int) -> int:
        """How many slots fit into a part of the free memory."""
        text: Any = self._adapter.config.get_text_config()
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        place = 2 * text.num_hidden_layers * heads * width * self._adapter.model.dtype.itemsize
        return _power(min(_MOST_SPEAKING, _SLOTS_SHARE * self._free() / (place * (length + _ANSWER))))


def _power(most: float) -> int:
    """The largest power of two up to a number: a run that is resumed with a little less memory finds the same."""
    return 1 << max(0, int(most).bit_length() - 1)
