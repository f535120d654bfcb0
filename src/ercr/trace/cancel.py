"""Cancels a run of the model: the caller gives a condition, which is checked between two blocks. Runs nothing itself.

The condition belongs to the thread that sets it, so it never stops a run of another thread. If no condition is set, no
hooks are added to the model.
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
    """A run inside this context raises `Cancelled` soon after `unwanted()` is true."""
    token = _unwanted.set(unwanted)
    try:
        yield
    finally:
        _unwanted.reset(token)


def each_stopped_when(unwanted: Callable[[], bool], items: Iterable[Item]) -> Iterator[Item]:
    """The same for every step of an iterator, whose steps may run in different threads."""
    steps, end = iter(items), object()
    try:
        while True:
            with stopped_when(unwanted):
                item = next(steps, end)
            if item is end:
                return
            yield item  # type: ignore[misc]  # `end` is gone
    finally:
        # if iteration ends early, its threads are stopped now and not when it is garbage collected
        if isinstance(steps, Generator):
            steps.close()


def check() -> None:
    """Raise `Cancelled` if this run is no longer wanted."""
    unwanted = _unwanted.get()
    if unwanted is not None and unwanted():
        raise Cancelled("This explanation was stopped, because nobody waits for it any more.")


def current_condition() -> Callable[[], bool] | None:
    """This thread's condition, so that another thread can check it, too."""
    return _unwanted.get()


def cancellable(adapter: Adapter) -> Adapter:
    """The adapter with a replica of the model that checks the condition before every block."""
    own = adapter.on_replica()
    if _unwanted.get() is not None:
        add_checks(own)
    return own


def add_checks(own: Adapter) -> None:
    """Check the condition before every block; the model of `own` must be a replica."""
    # models keep the blocks of the decoder and of vision towers in ModuleLists
    lists = (module for module in own.model.modules() if isinstance(module, nn.ModuleList))
    for block in {id(block): block for blocks in lists for block in blocks}.values():
        block.register_forward_pre_hook(lambda *_: check())


def checked_backward(stream: Tensor) -> None:
    """Check the condition when a backward pass reaches this tensor; the gradient is not changed."""
    unwanted = _unwanted.get()
    if unwanted is None or not stream.requires_grad:
        return
    condition = unwanted  # passed explicitly, because on a GPU the backward pass runs in another thread

    def check_condition(_: Tensor) -> None:
        with stopped_when(condition):
            check()

    stream.register_hook(check_condition)  # type: ignore[no-untyped-call]
