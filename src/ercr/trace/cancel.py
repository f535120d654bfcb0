"""Stopping a run of the model half-way: whoever waits for it says when it is no longer wanted; runs nothing itself.

The question is asked between two blocks of the model, and it belongs to the thread that asks: a run that another
thread has begun is never stopped by it. Where nobody may stop a run, nothing is added to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ercr.errors import Cancelled

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
    while True:
        with stopped_when(unwanted):
            item = next(steps, end)
        if item is end:
            return
        yield item  # type: ignore[misc]  # `end` is gone


def check() -> None:
    """Raise `Cancelled` if this run is no longer wanted."""
    unwanted = _unwanted.get()
    if unwanted is not None and unwanted():
        raise Cancelled("Nobody waits for this explanation any more: it was stopped.")


@contextmanager
def checked(model: nn.Module) -> Iterator[None]:
    """Passes of the model in here check before every block. Enter with the model's lock held: this adds hooks."""
    if _unwanted.get() is None:
        yield
        return
    # blocks of the decoder and of vision towers are what models keep in lists
    blocks = [block for module in model.modules() if isinstance(module, nn.ModuleList) for block in module]
    handles: list[RemovableHandle] = []
    try:
        handles.extend(block.register_forward_pre_hook(lambda *_: check()) for block in blocks)
        yield
    finally:
        for handle in handles:
            handle.remove()


def checked_backward(stream: Tensor) -> None:
    """A backward pass that comes through this tensor checks there; the gradient stays as it is."""
    unwanted = _unwanted.get()
    if unwanted is None or not stream.requires_grad:
        return
    asked = unwanted  # by name, because the device's own thread takes the backward pass

    def look(_: Tensor) -> None:
        with stopped_when(asked):
            check()

    stream.register_hook(look)  # type: ignore[no-untyped-call]
