"""Many samples through one model: prepared ahead in the background, batched by shape, results in the order given."""

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
from ercr.trace import Sample

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Ready:
    """A picture with its prompt (and answer, where it is given), prepared for a run."""

    image: LoadedImage
    sample: Sample


BatchSize = int | Literal["auto"]
Shape = tuple[tuple[int | tuple[int, ...], ...], ...]
_TRIAL = 4  # samples of the first batch, from which the size of the others is found
_MOST = 256
_SHARE = 0.7  # of the free memory that a batch may take


def in_batches(
    items: Sequence[Item],
    prepare: Callable[[Item], Ready],
    run: Callable[[Sequence[Ready]], list[Result]],
    sizes: Sizes,
    done: Callable[[int], None] = lambda count: None,
) -> list[Result]:
    """Run all items in batches of equal shapes; `prepare` works in background threads, ahead of `run`.

    `done` is told how many items each batch held.
    """
    results: dict[int, Result] = {}
    for batch in _grouped(items, prepare, sizes):
        indices, ready = zip(*batch, strict=True)
        results.update(zip(indices, sizes.guarded(run, ready), strict=True))
        done(len(batch))
    return [results[index] for index in range(len(items))]


def _grouped(
    items: Sequence[Item], prepare: Callable[[Item], Ready], sizes: Sizes
) -> Iterator[list[tuple[int, Ready]]]:
    """Batches of prepared items with their indices: a shape goes when it fills a batch, or when too many wait."""
    waiting: dict[Shape, list[tuple[int, Ready]]] = {}
    workers = min(16, max(1, (os.cpu_count() or 2) - 1))
    with ThreadPoolExecutor(workers, thread_name_prefix="ercr-prepare") as pool:
        coming: deque[tuple[int, Future[Ready]]] = deque()
        queue = iter(enumerate(items))
        try:
            while True:
                while len(coming) < 2 * sizes.size and (following := next(queue, None)) is not None:
                    coming.append((following[0], pool.submit(prepare, following[1])))
                if not coming:
                    break
                index, future = coming.popleft()
                ready = future.result()
                waiting.setdefault(_shape(ready.sample), []).append((index, ready))
                fullest = max(waiting, key=lambda shape: len(waiting[shape]))
                if len(waiting[fullest]) >= sizes.size or sum(map(len, waiting.values())) >= 4 * sizes.size:
                    yield waiting.pop(fullest)
            for rest in waiting.values():
                for start in range(0, len(rest), sizes.size):
                    yield rest[start : start + sizes.size]
        finally:
            for _, future in coming:
                future.cancel()


def _shape(sample: Sample) -> Shape:
    """What samples of a batch share, so that none is padded before its answer."""
    parts = (sample.prepared, *sample.views.values())
    return tuple((len(p.input_ids), *(tuple(t.shape) for t in p.pixels.values())) for p in parts)


class Sizes:
    """How many samples a batch may hold; it is found from free memory, and halved when memory runs out.

    Keep one for several calls of `explain_many`, so that what was found is not forgotten.
    """

    def __init__(self, size: BatchSize, adapter: Adapter) -> None:
        if size != "auto" and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InputError(f"batch_size must be at least 1, or 'auto', not {size!r}.")
        self._device = adapter.device
        self._trial = size == "auto" and self._device.type == "cuda"
        self.size = _TRIAL if self._trial else 8 if size == "auto" else int(size)

    def guarded(self, run: Callable[[Sequence[Item]], list[Result]], batch: Sequence[Item]) -> list[Result]:
        """Run a batch; out of memory, run its halves and keep later batches that small."""
        if self._trial:
            torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device) if self._trial else 0
        try:
            results = run(batch)
        except (torch.OutOfMemoryError, MemoryError):
            if len(batch) == 1:
                raise
        else:
            if self._trial:
                self._found((torch.cuda.max_memory_allocated(self._device) - before) / len(batch))
            return results
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        half = (len(batch) + 1) // 2
        self._trial, self.size = False, max(1, min(self.size, half))
        return self.guarded(run, batch[:half]) + self.guarded(run, batch[half:])

    def _found(self, each: float) -> None:
        """The size from what a sample took in the first batch."""
        free, _ = torch.cuda.mem_get_info(self._device)
        free += torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        self._trial = False
        self.size = int(max(1, min(_MOST, _SHARE * free / max(each, 1.0))))


def ready_to_copy(prepared: Prepared, adapter: Adapter) -> Prepared:
    """The sample's pictures in the model's precision and in pinned memory, where the model is on a GPU."""
    if adapter.device.type != "cuda":
        return prepared
    precision = adapter.model.dtype
    pixels = {
        key: (value.to(precision) if value.is_floating_point() else value).pin_memory()
        for key, value in prepared.pixels.items()
    }
    return replace(prepared, pixels=pixels)
