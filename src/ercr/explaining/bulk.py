"""Bulk runs: images are prepared in background threads and batched by shape; results keep the given order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch

from ercr.errors import InputError
from ercr.image.images import LoadedImage
from ercr.models.base import Adapter, Prepared
from ercr.trace import TraceRequest
from ercr.trace.memory import in_halves

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Ready:
    """An image and the request that runs the model on it."""

    image: LoadedImage
    request: TraceRequest


BatchSize = int | Literal["auto"]
Shape = tuple[tuple[int | tuple[int, ...], ...], ...]
_TRIAL = 4  # size of the first batch, from whose memory the size of the others is computed
_MAX_BATCH = 256
_SHARE = 0.7  # share of the free memory that a batch may take


def in_batches(
    items: Sequence[Item],
    prepare: Callable[[Item], Ready],
    run: Callable[[Sequence[Ready]], list[Result]],
    sizes: Sizes,
    done: Callable[[int], None] = lambda count: None,
) -> list[Result]:
    """Run all items in batches of equal shapes; `prepare` is called in background threads, ahead of `run`.

    `done` is called with the number of items of each batch.
    """
    results: dict[int, Result] = {}
    for batch in _grouped(items, prepare, sizes):
        indices, ready = zip(*batch, strict=True)
        results.update(zip(indices, sizes.run(run, ready), strict=True))
        done(len(batch))
    return [results[index] for index in range(len(items))]


def _grouped(
    items: Sequence[Item], prepare: Callable[[Item], Ready], sizes: Sizes
) -> Iterator[list[tuple[int, Ready]]]:
    """Batches of prepared items with their indices: the fullest shape first, as soon as it fills a batch."""
    waiting: dict[Shape, list[tuple[int, Ready]]] = {}
    workers = min(16, max(1, (os.cpu_count() or 2) - 1))
    with ThreadPoolExecutor(workers, thread_name_prefix="ercr-prepare") as pool:
        pending: deque[tuple[int, Future[Ready]]] = deque()
        queue = iter(enumerate(items))
        try:
            while True:
                while len(pending) < 2 * sizes.size and (upcoming := next(queue, None)) is not None:
                    pending.append((upcoming[0], pool.submit(prepare, upcoming[1])))
                if not pending:
                    break
                index, future = pending.popleft()
                ready = future.result()
                waiting.setdefault(_shape(ready.request), []).append((index, ready))
                fullest = max(waiting, key=lambda shape: len(waiting[shape]))
                if len(waiting[fullest]) >= sizes.size or sum(map(len, waiting.values())) >= 4 * sizes.size:
                    yield waiting.pop(fullest)
            for rest in waiting.values():
                for start in range(0, len(rest), sizes.size):
                    yield rest[start : start + sizes.size]
        finally:
            for _, future in pending:
                future.cancel()


def _shape(request: TraceRequest) -> Shape:
    """The shapes that all samples of a batch share, so that no prompt is padded."""
    parts = (request.prepared, *request.views.values())
    return tuple(
        (len(p.input_ids), *(tuple(t.shape) for t in p.pixels.values() if isinstance(t, torch.Tensor))) for p in parts
    )


class Sizes:
    """The batch size: computed from the free memory, and halved when memory runs out.

    Pass the same object to several calls of an explainer's methods to keep the size that was found.
    """

    def __init__(self, size: BatchSize, adapter: Adapter) -> None:
        if size != "auto" and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InputError(f"batch_size must be a whole number of at least 1, or 'auto', not {size!r}.")
        self._device = adapter.device
        self._trial = size == "auto" and self._device.type == "cuda"
        self.size = _TRIAL if self._trial else 8 if size == "auto" else int(size)

    def run(self, function: Callable[[Sequence[Item]], list[Result]], batch: Sequence[Item]) -> list[Result]:
        """Call the function with a batch; if memory runs out, with its halves, and keep later batches that small."""
        return in_halves(lambda part: self._measured(function, part), batch, self._smaller)

    def _measured(self, function: Callable[[Sequence[Item]], list[Result]], batch: Sequence[Item]) -> list[Result]:
        """The results of a batch; the memory that the first batch took decides how large the others are."""
        if not self._trial:
            return function(batch)
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        results = function(batch)
        self._set_size((torch.cuda.max_memory_allocated(self._device) - before) / len(batch))
        return results

    def _smaller(self, half: int) -> None:
        self._trial, self.size = False, max(1, min(self.size, half))

    def _set_size(self, each: float) -> None:
        """Set the size from the memory that one sample of the first batch took."""
        free, _ = torch.cuda.mem_get_info(self._device)
        free += torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        self._trial = False
        self.size = int(max(1, min(_MAX_BATCH, _SHARE * free / max(each, 1.0))))


def ready_to_copy(prepared: Prepared, adapter: Adapter) -> Prepared:
    """For a model on a GPU: the images in the model's precision and in pinned memory."""
    if adapter.device.type != "cuda":
        return prepared
    precision = adapter.model.dtype
    pixels = {
        key: (value.to(precision) if value.is_floating_point() else value).pin_memory()
        if isinstance(value, torch.Tensor)
        else value
        for key, value in prepared.pixels.items()
    }
    return replace(prepared, pixels=pixels)
