"""Recognises errors for lack of memory, frees memory after one, and goes on with half of a batch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
_PHRASES = ("out of memory", "not enough memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """Whether a smaller batch may help."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _PHRASES)


def device_lost(error: BaseException) -> bool:
    """Whether this process can no longer use the GPU, so that every further sample would fail, too."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error) and not out_of_memory(error)


def free_memory() -> None:
    """Free what a failed attempt left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def in_halves(
    run: Callable[[Sequence[Item]], list[Result]],
    batch: Sequence[Item],
    smaller: Callable[[int], None] = lambda size: None,
    divides: Callable[[Exception], bool] = out_of_memory,
) -> list[Result]:
    """The results of a batch. If it fails for a reason that `divides` it, those of its two halves.

    `smaller` is told how many items the larger half holds. The error of a single item is raised.
    """
    try:
        return run(batch)
    except Exception as error:
        if len(batch) == 1 or not divides(error):
            raise
    free_memory()  # after the handler, as the error holds the tensors of the failed attempt
    half = (len(batch) + 1) // 2
    smaller(half)
    return [result for part in (batch[:half], batch[half:]) for result in in_halves(run, part, smaller, divides)]
