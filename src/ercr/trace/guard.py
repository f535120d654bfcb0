"""torch's settings of the calling thread while a model is run and explained; they are as before, whatever ends it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

Given = ParamSpec("Given")
Result = TypeVar("Result")


def guarded(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function without gradients and outside inference mode, whose tensors no gradient method could use.

    torch's own context managers set a flag before they can promise to set it back, and an interrupt may come between.
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
