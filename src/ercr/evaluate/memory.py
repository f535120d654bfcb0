"""Telling a lack of memory from other errors, and making room after it."""

from __future__ import annotations

import gc

import torch

_PHRASES = ("out of memory", "not enough memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """Whether a smaller batch may help."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in _PHRASES)


def device_lost(error: BaseException) -> bool:
    """Whether the GPU can no longer be used by this process, so that every further sample would fail, too."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error) and not out_of_memory(error)


def free_memory() -> None:
    """Give back what a failed attempt left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
