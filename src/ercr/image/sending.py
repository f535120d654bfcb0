"""Copies to a device that nobody waits for."""

from __future__ import annotations

import torch
from torch import Tensor


def sent(value: Tensor, device: torch.device) -> Tensor:
    """A copy on the device; on a GPU it is not waited for, nor for what the device still has to do."""
    if device.type != "cuda" or value.device.type != "cpu":
        return value.to(device)
    return value.pin_memory().to(device, non_blocking=True)
