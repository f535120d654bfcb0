"""Stopping a run of the model half-way: whoever waits for it says when it is no longer wanted; runs nothing itself.

The question is asked between two blocks of the model, and it belongs to the thread that asks: a run that another
thread has begun is never stopped by it. Where nobody may stop a run, nothing is added to its modules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import Tensor, nn

from ercr.errors import Cancelled
from ercr.models.base import Adapter

Item = TypeVar("Item")
_unwanted: ContextVar[Callable[[], bool] | None] = ContextVar("ercr_unwanted", default=None)


@contextmanager
def stopped_when(unwanted: Callable[[], bool]) -> Iterator[None]:
    """What runs in here raises `Cancelled` soon after `unwanted()` is true."""
    token = _unwanted.set(unwanted)
    try:
        yield
    finally:
        _unwanted.reset(token)


def each_stopped_when(unwanted: Callable[[], bool], items: Iterable[Item]) -> Iterator[Item]:
    """The same for every step of a generator, whose steps may be taken in different threads."""
    steps, end = iter(items), object()
    try:
        while True:
            with stopped_when(unwanted):
                item = next(steps, end)
            if item is end:
                return
            yield item  # type: ignore[misc]  # `end` is gone
    finally:
        if isinstance(steps, Generator):  # left half-way, it stops what runs for it now and not at some later time
            steps.close()


def check() -> None:
    """Raise `Cancelled` if this run is no longer wanted."""
    unwanted = _unwanted.get()
    if unwanted is not None and unwanted():
        raise Cancelled("Nobody waits for this explanation any more: it was stopped.")


def asked() -> Callable[[], bool] | None:
    """The question that belongs to this thread now, to be asked on in another one."""
    return _unwanted.get()


def checked(adapter: Adapter) -> Adapter:
    """The adapter over modules of its own, whose passes check before every block."""
    own = adapter.on_replica()
    if _unwanted.get() is not None:
        watch(own)
    return own


def watch(own: Adapter) -> None:
    """Let every block check before it runs; `own` has modules of its own."""
    # blocks of the decoder and of vision towers are what models keep in lists
    lists = (module for module in own.model.modules() if isinstance(module, nn.ModuleList))
    for block in {id(block): block for blocks in lists for block in blocks}.values():
        block.register_forward_pre_hook(lambda *_: check())


def checked_backward(stream: Tensor) -> None:
    """A backward pass that comes through this tensor checks there; the gradient stays as it is."""
    unwanted = _unwanted.get()
    if unwanted is None or not stream.requires_grad:
        return
    question = unwanted  # by name, because the device's own thread takes the backward pass

    def look(_: Tensor) -> None:
        with stopped_when(question):
            check()

    stream.register_hook(look)  # type: ignore[no-untyped-call]
