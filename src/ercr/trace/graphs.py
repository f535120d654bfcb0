"""Passes of a model as captured CUDA graphs, so that a small pass spends no time on kernel launches.

Inputs are padded to a few sizes (in `compiled.py` and in the families), so that pictures of many sizes share a graph,
and a pass is captured when its size comes for the first time. All graphs share one memory pool, so the output of a
graph is copied before another one runs.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor

from ercr.errors import Cancelled
from ercr.trace.memory import out_of_memory

_MAX_CAPTURED = 32  # captured passes in the cache; the least recently used is dropped
_capturing = threading.Lock()  # one capture at a time per process; other threads may run passes meanwhile
_WARMUP_RUNS = 1  # runs before a capture, so that kernels are compiled and libraries choose their workspaces


class CaptureFailed(Exception):
    """A pass could not be captured; it runs as it is."""


class Graph(Protocol):
    """A captured pass, as torch.cuda.CUDAGraph."""

    def replay(self) -> None: ...


@dataclass
class _Captured:
    graph: Graph
    inputs: dict[str, Tensor]
    output: Tensor
    keep: tuple[object, ...]  # objects whose memory the graph reads, which must stay alive


class Graphs:
    """Captured passes by key. Without a GPU every pass is simply run."""

    def __init__(self, device: torch.device) -> None:
        self.active = device.type == "cuda"
        self._device = device
        self._pool: Any = None
        self._alive: list[ref[Any]] = []  # the graphs of the pool
        self._refused: set[Hashable] = set()  # keys of passes that could not be captured
        self._captured: OrderedDict[Hashable, _Captured] = OrderedDict()

    def run(
        self,
        key: Hashable,
        inputs: dict[str, Tensor],
        function: Callable[..., Tensor],
        keep: tuple[object, ...] = (),
    ) -> Tensor:
        """`function(**inputs)`, captured the first time that the key comes, and then replayed."""
        if not self.active:
            return function(**inputs)
        if key in self._captured:
            self._captured.move_to_end(key)
            known = self._captured[key]
            for name, value in inputs.items():
                known.inputs[name].copy_(value, non_blocking=True)
            known.graph.replay()
            return known.output.clone()
        if key in self._refused:
            return function(**inputs)
        static = {name: value.clone() for name, value in inputs.items()}
        output: list[Tensor] = []
        try:
            graph = self.capture(lambda: output.append(function(**static)))
        except CaptureFailed:
            self._refused.add(key)
            return function(**inputs)
        self._captured[key] = _Captured(graph, static, output[-1], keep)
        while len(self._captured) > _MAX_CAPTURED:
            self._captured.popitem(last=False)
        graph.replay()
        return output[-1].clone()

    def clear(self) -> None:
        """Drop all captured passes."""
        self._captured.clear()

    def capture(self, function: Callable[[], object]) -> Graph:
        """A CUDA graph of the function, which also runs before the capture; `CaptureFailed` if it cannot be captured.

        A lack of memory is not such a failure: a smaller batch may do.
        """
        with _capturing:
            try:
                return self._capture(function)
            except Exception as error:
                if out_of_memory(error) or isinstance(error, Cancelled):
                    raise
                warnings.warn(f"A pass runs without a CUDA graph, which is slower: {error}", stacklevel=2)
                raise CaptureFailed from error

    def _capture(self, function: Callable[[], object]) -> Graph:
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            for _ in range(_WARMUP_RUNS):
                function()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        self._alive = [known for known in self._alive if known() is not None]
        if not self._alive:  # a pool ends with the last of its graphs, and its handle must not be used again
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self._alive.append(ref(graph))
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            function()
        return graph
