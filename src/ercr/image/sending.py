"""Copies to a device that nobody waits for."""

from __future__ import annotations

import torch
from torch import Tensor


def pinned(value: Tensor, device: torch.device) -> Tensor:
    """The same in memory from which the device copies without being waited for; threads may do this."""
    return value.pin_memory() if device.type == "cuda" and value.device.type == "cpu" else value


def sent(value: Tensor, device: torch.device) -> Tensor:
    """A copy on the device; on a GPU it is not waited for, nor for what the device still has to do."""
    return pinned(value, device).to(device, non_blocking=device.type == "cuda")
