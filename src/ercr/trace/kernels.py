"""Which of torch's attention kernels a recorded run may use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_lock = threading.Lock()
_under_way = 0  # runs that keep off cuDNN now; models run in several threads, and the setting is the process's


@contextmanager
def without_plans() -> Iterator[None]:
    """Keep to attention kernels that take any length as it comes.

    On some GPUs torch prefers cuDNN's attention, which builds a plan for every pair of lengths it has not met: tens
    of milliseconds on the host, and an answer has a new length at every token. Without the flash kernels, cuDNN is
    the user's choice and stays.
    """
    if not _begin():
        yield
        return
    try:
        yield
    finally:
        _end()


def _begin() -> bool:
    global _under_way
    cuda: Any = torch.backends.cuda
    with _lock:
        if not _under_way:
            if not (torch.cuda.is_available() and cuda.cudnn_sdp_enabled() and cuda.flash_sdp_enabled()):
                return False
            cuda.enable_cudnn_sdp(False)
        _under_way += 1
        return True


def _end() -> None:
    global _under_way
    cuda: Any = torch.backends.cuda
    with _lock:
        _under_way -= 1
        if not _under_way:
            cuda.enable_cudnn_sdp(True)
