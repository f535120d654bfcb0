"""Bulk runs: pictures are prepared in background threads and run together, by cost and not by shape.

Samples of different lengths share a pass, so far as little of it is padding. An answer that ends makes room for another
sample while others still speak. What runs together depends on the samples and the sizes alone, never on timing, so the
same call gives the same numbers. Results come as soon as they are there; `ordered` brings them into the given order.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import torch

from ercr.explaining.sizes import Sizes
from ercr.image.gallery import Shown
from ercr.models.base import Adapter
from ercr.models.chat import Message
from ercr.models.inputs import Prepared
from ercr.trace import TraceRequest
from ercr.trace.flow import Flow
from ercr.trace.memory import free_memory, out_of_memory
from ercr.trace.record import SampleRun

Item = TypeVar("Item")
Given = TypeVar("Given", contravariant=True)
Result = TypeVar("Result")
# notes that samples have ended; what it returns starts their last steps, and what that returns waits for the results
Wait = Callable[[], Sequence[Result]]
Finish = Callable[[Sequence[tuple["Ready", SampleRun]]], Callable[[], Wait[Result]]]
_MOST_THREADS = 8  # that prepare pictures; more of them would hinder each other
_SMALL = 2**14  # numbers that are not worth a copy to pinned memory
_CHOICE = 3  # passes' worth of samples from which those of a pass are chosen
_PARTS = 4  # of a pass: so many samples are enough to be finished together, and too few for a pass of their own
_WASTE = 1.15  # tokens of a pass with its padding, at most so many times those without


@dataclass(frozen=True)
class Ready:
    """What is shown and the request that runs the model on it."""

    image: Shown
    request: TraceRequest
    conversation: tuple[Message, ...] = ()  # what was said before the answer, where it is more than one prompt

    @property
    def length(self) -> int:
        """Tokens of the prompt, and of the answer if it is given."""
        answer = self.request.answer
        return len(self.request.prepared.input_ids) + (0 if answer is None else len(answer))

    @property
    def prepared_on(self) -> str:
        """The kind of device that resized the image."""
        pixels = self.request.prepared.pixels.values()
        return next((value.device.type for value in pixels if isinstance(value, torch.Tensor)), "cpu")


Waiting = tuple[int, Ready]


@dataclass(frozen=True)
class Lost:
    """A sample that could not be prepared, and why."""

    error: Exception


class Preparing(Protocol[Given]):
    """How items become ready: `load` runs in background threads, `finish` in the thread that runs the model."""

    def load(self, item: Given, /) -> Any: ...
    def finish(self, loaded: Any) -> Ready: ...


class Ahead(Generic[Item]):
    """Prepares items in background threads, a bounded number ahead; they come in their order.

    What cannot be prepared is raised, or with `keep` set aside.
    """

    def __init__(self, items: Iterable[Item], prepare: Preparing[Item], keep: bool = False) -> None:
        workers = min(_MOST_THREADS, max(1, (os.cpu_count() or 2) - 1))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ercr-prepare")
        self._prepare, self._keep = prepare, keep
        self._lost: list[tuple[int, Lost]] = []
        self._coming = iter(enumerate(items))
        self._pending: deque[tuple[int, Future[Any]]] = deque()
        self._more = True

    def take(self, count: int, ahead: int) -> list[Waiting]:
        """The next `count` items, or what is left of them; so many more are then being prepared."""
        self._start(count + ahead)
        found = list[Waiting]()
        while len(found) < count and self._pending:
            index, future = self._pending[0]
            try:
                found.append((index, self._prepare.finish(future.result())))
            except Exception as error:
                if not self._keep:
                    raise
                self._lost.append((index, Lost(error)))
            self._pending.popleft()
            self._start(count - len(found) + ahead)
        return found

    @property
    def left(self) -> int | None:
        """How many items have not been taken, if that is known."""
        return None if self._more else len(self._pending)

    def lost(self) -> list[tuple[int, Lost]]:
        """What was set aside since the last call."""
        found, self._lost = self._lost, []
        return found

    def _start(self, count: int) -> None:
        while self._more and len(self._pending) < count:
            coming = next(self._coming, None)
            if coming is None:
                self._more = False
            else:
                self._pending.append((coming[0], self._pool.submit(self._prepare.load, coming[1])))

    def close(self) -> None:
        for _, future in self._pending:
            future.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)


def in_batches(
    items: Iterable[Item],
    prepare: Preparing[Item],
    run: Callable[[Sequence[Ready]], Sequence[Result]],
    sizes: Sizes,
    keep: bool = False,
) -> Iterator[tuple[int, Result | Lost]]:
    """Run items in batches of similar lengths, each until its last answer has ended."""
    ahead, waiting = Ahead(items, prepare, keep), list[Waiting]()
    try:
        while True:
            waiting += ahead.take(max(0, _CHOICE * sizes.size - len(waiting)), sizes.size)
            yield from ahead.lost()
            if not waiting:
                return
            batch = take_alike(waiting, sizes.size, _WASTE)
            results = sizes.run(lambda part: list(run(part)), [ready for _, ready in batch])
            yield from zip([index for index, _ in batch], results, strict=True)
    finally:
        ahead.close()


def in_flow(
    items: Iterable[Item],
    prepare: Preparing[Item],
    start: Callable[[int], Flow],
    finish: Finish[Result],
    sizes: Sizes,
    packed: bool = False,
    keep: bool = False,
) -> Iterator[tuple[int, Result | Lost]]:
    """Run items so that samples begin as others end; `start(rows)` makes the flow. `packed` passes need no padding."""
    ahead = Ahead(items, prepare, keep)
    work = _Work(ahead, start, finish, sizes, None if packed else _WASTE)
    try:
        yield from work.results()
    finally:
        ahead.close()
        work.close()


class _Work(Generic[Item, Result]):
    """The samples of a flow: those that wait, those that are in it, and those that have ended."""

    def __init__(
        self,
        ahead: Ahead[Item],
        start: Callable[[int], Flow],
        finish: Finish[Result],
        sizes: Sizes,
        waste: float | None,
    ) -> None:
        self._ahead, self._start, self._finish, self._sizes, self._waste = ahead, start, finish, sizes, waste
        self._waiting: list[Waiting] = []
        self._inside: dict[int, Ready] = {}
        self._ended: list[tuple[int, Ready, SampleRun]] = []
        self._over: deque[tuple[list[int], Callable[[], Wait[Result]]]] = deque()  # whose last steps have not started
        self._later: deque[tuple[list[int], Wait[Result]]] = deque()  # whose last steps have
        self._flow: Flow | None = None
        self._rows = 1  # of the flow

    def results(self) -> Iterator[tuple[int, Result | Lost]]:
        while self._fill():
            yield from self._ahead.lost()
            if self._room():
                self._begin()
            # while the device reads prompts, the host finishes what ended before and prepares what comes next
            yield from self._found()
            self._start_last()
            self._refill()
            # between two passes over prompts everybody speaks a little, so that answers end one pass after another
            self._advance()
            if len(self._ended) >= max(1, self._sizes.chunk // _PARTS) or not self._inside:
                self._close_off()
        yield from self._ahead.lost()
        self._close_off()
        self._start_last()
        yield from self._found()

    def close(self) -> None:
        if self._flow is not None:
            self._flow.stop()

    def _fill(self) -> bool:
        """Let so many samples wait that a pass can be chosen from them; False when all have come and gone."""
        if not self._waiting and not self._inside:
            self._waiting += self._ahead.take(self._sizes.chunk, self._sizes.chunk)
        return bool(self._waiting or self._inside)

    def _room(self) -> bool:
        """Whether samples should begin now: some wait, and there is room for a whole pass of them."""
        if self._flow is None:
            if not self._waiting:
                return False
            self._flow = self._start(self._sizes.rows(self._waiting[0][1].length))
            self._rows = self._flow.free
        self._refill()
        return 0 < min(len(self._waiting), self._sizes.chunk, self._rows) <= self._flow.free

    def _refill(self) -> None:
        """Let so many samples wait that those of the next pass can be chosen from them."""
        chunk = min(self._sizes.chunk, self._rows)
        wanted = (1 if self._waste is None else _CHOICE) * chunk
        if len(self._waiting) < wanted:
            self._waiting += self._ahead.take(wanted - len(self._waiting), chunk)
        left = self._ahead.left
        if left and left <= chunk // _PARTS:
            self._waiting += self._ahead.take(left, 0)

    def _following(self) -> int:
        """How many samples the next pass may take; where nothing is padded, it takes a few last ones along."""
        chunk, count = self._sizes.chunk, len(self._waiting)
        last = self._waste is None and self._ahead.left == 0 and count <= chunk + chunk // _PARTS
        return max(chunk, min(count, self._sizes.size)) if last else chunk

    def _begin(self) -> None:
        assert self._flow is not None
        batch = dict(take_alike(self._waiting, min(self._following(), self._flow.free), self._waste))
        requests = {index: ready.request for index, ready in batch.items()}
        flow = self._flow
        try:
            self._sizes.measured(lambda: flow.begin(requests), len(batch))
        except Exception as error:
            if not out_of_memory(error) or (len(batch) == 1 and not self._inside):
                raise
            self._smaller(len(batch), batch)
            return
        self._inside |= batch

    def _advance(self) -> None:
        if self._flow is None:  # memory ran out, and nothing has begun anew
            return
        try:
            over = self._flow.advance()
        except Exception as error:
            if not out_of_memory(error) or len(self._inside) == 1:
                raise
            self._smaller(len(self._inside), {})
            return
        self._ended += [(index, self._inside.pop(index), run) for index, run in over]

    def _smaller(self, count: int, batch: dict[int, Ready]) -> None:
        """Memory ran out: the samples that have not ended wait again, and fewer of them share a pass from now on."""
        assert self._flow is not None
        self._flow.stop()
        self._flow = None
        self._waiting = sorted([*self._waiting, *self._inside.items(), *batch.items()], key=lambda one: one[0])
        self._inside.clear()
        free_memory()
        self._sizes.smaller((count + 1) // 2)

    def _close_off(self) -> None:
        """Note all samples that have ended."""
        if not self._ended:
            return
        indices, pairs = [index for index, _, _ in self._ended], [(ready, run) for _, ready, run in self._ended]
        self._ended = []
        self._over.append((indices, self._finish(pairs)))

    def _start_last(self) -> None:
        """Start the last steps of what has ended; on a GPU they do not wait for passes that began since then."""
        while self._over:
            indices, start = self._over.popleft()
            self._later.append((indices, start()))

    def _found(self) -> Iterator[tuple[int, Result]]:
        while self._later:
            indices, results = self._later.popleft()
            yield from zip(indices, results(), strict=True)


def take_alike(waiting: list[Waiting], count: int, waste: float | None) -> list[Waiting]:
    """Remove from those that wait the one that came first, and others of nearly its length, in their order.

    With `waste`, a pass over them takes at most so many times the tokens that it would take without padding.
    """
    if waste is None or len(waiting) <= 1:
        taken, waiting[:] = waiting[:count], waiting[count:]
        return taken
    order = sorted(range(len(waiting)), key=lambda at: (waiting[at][1].length, waiting[at][0]))
    oldest = min(range(len(waiting)), key=lambda at: waiting[at][0])
    low = high = order.index(oldest)
    own = total = longest = waiting[oldest][1].length
    while high - low + 1 < count:
        below = waiting[order[low - 1]][1].length if low else None
        above = waiting[order[high + 1]][1].length if high + 1 < len(order) else None
        if below is None and above is None:
            break
        down = above is None or (below is not None and own - below <= above - own)
        added = below if down else above
        assert added is not None
        if max(longest, added) * (high - low + 2) > waste * (total + added):
            break
        total, longest = total + added, max(longest, added)
        low, high = (low - 1, high) if down else (low, high + 1)
    chosen = set(order[low : high + 1])
    taken = sorted((waiting[at] for at in chosen), key=lambda one: one[0])
    waiting[:] = [one for at, one in enumerate(waiting) if at not in chosen]
    return taken


def few_collections(results: Iterable[Result]) -> Iterator[Result]:
    """Results as they come; meanwhile Python's collector leaves alone what existed before.

    Otherwise it looks through all objects of torch and transformers every few dozen explanations, for which everything
    waits: half a second each time.
    """
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.freeze()
    try:
        yield from results
    finally:
        if ours:
            gc.unfreeze()


def ordered(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Results in the order of their indices, each as soon as all before it are there."""
    held: dict[int, Result] = {}
    following = 0
    for index, result in results:
        held[index] = result
        while following in held:
            yield held.pop(following)
            following += 1


def ready_to_copy(prepared: Prepared, adapter: Adapter) -> Prepared:
    """For a model on a GPU: the images in the model's precision and in pinned memory."""
    if adapter.device.type != "cuda":
        return prepared
    precision = adapter.model.dtype
    pixels = {
        key: (value.to(precision) if value.is_floating_point() else value).pin_memory()
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.numel() > _SMALL
        else value
        for key, value in prepared.pixels.items()
    }
    return replace(prepared, pixels=pixels)
