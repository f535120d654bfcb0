"""torch's gradient mode while a model is run and explained; afterwards it is as before, even after an interrupt."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import nullcontext
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")
Item = TypeVar("Item")


def without_gradients(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorator: call the function without gradients and outside inference mode.

    Gradient methods cannot use tensors that were made in inference mode. The flag is restored explicitly, because an
    interrupt may come after torch's context managers have set it and before they are ready to restore it.
    """

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        grad = torch.is_grad_enabled()
        try:
            ordinary = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
            with ordinary, torch.no_grad():
                return function(*args, **kwargs)
        finally:
            if torch.is_grad_enabled() != grad:
                torch.set_grad_enabled(grad)

    return call


def each_without_gradients(items: Iterable[Item]) -> Iterator[Item]:
    """The same for every step of an iterator; between two steps the mode is the caller's."""
    steps, end = iter(items), object()
    step = without_gradients(lambda: next(steps, end))
    try:
        while (item := step()) is not end:
            yield item  # type: ignore[misc]  # `end` is gone
    finally:
        # if iteration ends early, its threads are stopped now and not when it is garbage collected
        if isinstance(steps, Generator):
            steps.close()
