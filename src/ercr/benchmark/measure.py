"""Measures seconds, peak memory, operations and forward passes of a function; knows no model by name."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ercr.models.base import Adapter


@dataclass(frozen=True)
class Cost:
    seconds: float  # median of the repeats
    spread: tuple[float, float]  # fastest and slowest
    memory_gb: float | None  # peak while it ran, weights included; only on a GPU
    tflops: float | None = None
    forwards: float | None = None  # passes of the decoder over more than one position


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_of(function: Callable[[], object], device: torch.device, repeats: int = 5, warm: int = 2) -> Cost:
    """Median seconds and peak memory; the first runs are not counted."""
    for _ in range(warm):
        function()
    synchronize(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    return Cost(statistics.median(seconds), (min(seconds), max(seconds)), memory)


def together(functions: Mapping[str, Callable[[], object]], device: torch.device, repeats: int = 5) -> dict[str, Cost]:
    """Costs of several functions, measured in turns, so that a busy moment of the machine affects all of them."""
    alone = {name: time_of(function, device, repeats=1, warm=2) for name, function in functions.items()}
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            synchronize(device)
            began = time.perf_counter()
            function()
            synchronize(device)
            seconds[name].append(time.perf_counter() - began)
    return {
        name: Cost(statistics.median(taken), (min(taken), max(taken)), alone[name].memory_gb)
        for name, taken in seconds.items()
    }


def operations(function: Callable[[], object]) -> float:
    """Floating-point operations by torch's counter, which does not see captured CUDA graphs."""
    from torch.utils.flop_counter import FlopCounterMode

    names = [f"_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn")]
    names.append("_scaled_dot_product_flash_attention_for_cpu")
    mapping = {getattr(torch.ops.aten, name): _attention_operations for name in names if hasattr(torch.ops.aten, name)}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        function()
    return float(counter.get_total_flops())


def _attention_operations(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Two products per head; torch's own formula refuses heads that share keys."""
    batch, heads, rows, width = query
    return 2 * int(batch * heads * rows * key[2] * (width + value[3]))


def passes(adapter: Adapter, function: Callable[[], object]) -> int:
    """Number of forward passes of the decoder over more than one position."""
    lengths: list[int] = []
    hook = adapter.final_norm.register_forward_hook(lambda module, args, out: lengths.append(out.shape[-2]))
    try:
        function()
    finally:
        hook.remove()
    return sum(length > 1 for length in lengths)


def device_time(function: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """Seconds on the device's clock (on a CPU: wall-clock time)."""
    if device.type != "cuda":
        return time_of(function, device, repeats, 1).seconds
    function()
    taken = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        start.record()
        function()
        stop.record()
        torch.cuda.synchronize(device)
        taken.append(start.elapsed_time(stop) / 1000)
    return float(statistics.median(taken))
