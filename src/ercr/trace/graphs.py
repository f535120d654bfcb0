"""Passes of a model as captured CUDA graphs: a small pass then costs what the device needs, and no launches.

A pass is captured when its shapes come for the second time, because capturing costs about as much as several passes.
All graphs share one pool of memory, so what a graph returns is copied before another one runs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_MOST = 32  # captured passes that are kept
_REMEMBERED = 256  # passes that came once and may come again
_capturing = threading.Lock()  # one capture at a time in the process; other threads may run meanwhile
_WARM = 2  # runs before a capture, in which libraries choose their kernels and workspaces


@dataclass
class _Captured:
    graph: Any
    inputs: dict[str, Tensor]
    output: Tensor
    keep: tuple[object, ...]  # whatever the graph reads by address


class Graphs:
    """Captured passes by key. Off a GPU every pass simply runs."""

    def __init__(self, device: torch.device) -> None:
        self.active = device.type == "cuda"
        self._device = device
        self._pool: Any = None
        self._seen: OrderedDict[Hashable, None] = OrderedDict()  # in the order they came
        self._captured: OrderedDict[Hashable, _Captured] = OrderedDict()

    def run(
        self,
        key: Hashable,
        inputs: dict[str, Tensor],
        function: Callable[..., Tensor],
        keep: tuple[object, ...] = (),
        large: bool = False,
    ) -> Tensor:
        """`function(**inputs)`, replayed where these shapes were captured before; `large` passes are not worth it."""
        if large or not self.active:
            return function(**inputs)
        if key in self._captured:
            self._captured.move_to_end(key)
            known = self._captured[key]
            for name, value in inputs.items():
                known.inputs[name].copy_(value, non_blocking=True)
            known.graph.replay()
            return known.output.clone()
        if key not in self._seen:
            self._seen[key] = None
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            return function(**inputs)
        del self._seen[key]
        static = {name: value.clone() for name, value in inputs.items()}
        output: list[Tensor] = []
        graph = self.capture(lambda: output.append(function(**static)))
        self._captured[key] = _Captured(graph, static, output[-1], keep)
        while len(self._captured) > _MOST:
            self._captured.popitem(last=False)
        graph.replay()
        return output[-1].clone()

    def forget(self, keep: object) -> None:
        """Drop the passes that were captured to read something by its address which is no longer used."""
        gone = [key for key, captured in self._captured.items() if any(held is keep for held in captured.keep)]
        for key in gone:
            del self._captured[key]

    def capture(self, function: Callable[[], object]) -> Any:
        """A graph of what the function launches; the function also runs a few times before."""
        with _capturing:
            return self._capture(function)

    def _capture(self, function: Callable[[], object]) -> Any:
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM):
                function()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            function()
        return graph
