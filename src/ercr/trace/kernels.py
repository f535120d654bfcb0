"""Which of torch's attention kernels a recorded run may use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_plans() -> Iterator[None]:
    """Keep to attention kernels that take any length as it comes.

    On some GPUs torch prefers cuDNN's attention, which builds a plan for every pair of lengths it has not met: tens
    of milliseconds on the host, and an answer has a new length at every token. Without the flash kernels, cuDNN is
    the user's choice and stays.
    """
    cuda: Any = torch.backends.cuda
    if not (torch.cuda.is_available() and cuda.cudnn_sdp_enabled() and cuda.flash_sdp_enabled()):
        yield
        return
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(True)
