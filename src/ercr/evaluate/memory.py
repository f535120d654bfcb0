"""Recognises errors for lack of memory, and frees memory after one."""

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
    """Whether this process can no longer use the GPU, so that every further sample would fail, too."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error) and not out_of_memory(error)


def free_memory() -> None:
    """Free what a failed attempt left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
