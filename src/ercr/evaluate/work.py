"""What the engines know of a long computation: parts that are computed one by one, here or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ercr.evaluate.run import Run
from ercr.explaining.sizes import BatchSize

if TYPE_CHECKING:
    from ercr.explaining.explainer import Explainer


@dataclass(frozen=True)
class Done:
    """A part that was written, with its duration and failures."""

    part: int
    samples: int
    failed: int  # samples of which something failed
    seconds: float


class PartWorker(Protocol):
    """Turns parts into files with one loaded model."""

    def part(self, number: int, following: int | None = None) -> Done:
        """Compute a part and write it; the following one may be prepared meanwhile."""


class Loadable(Protocol):
    """Which model is loaded, and where."""

    @property
    def model(self) -> str: ...
    @property
    def revision(self) -> str | None: ...
    @property
    def device(self) -> str: ...
    @property
    def dtype(self) -> str: ...


class Work(Protocol):
    """A long computation: a plain value that can be sent to another machine."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    @property
    def command(self) -> str:
        """What a user runs."""

    @property
    def source(self) -> str:
        """What the samples come from, as a user names it."""

    @property
    def device(self) -> str: ...
    def open(self) -> Sequence[Any]: ...
    def count(self, samples: Sequence[Any]) -> int: ...
    def parts(self, samples: Sequence[Any]) -> list[range]: ...
    def settings(self, samples: Sequence[Any]) -> dict[str, Any]: ...
    def load(self) -> Explainer: ...
    def worker(
        self,
        explainer: Explainer,
        samples: Sequence[Any],
        settings: Mapping[str, Any],
        run: Run,
        batch_size: BatchSize,
        moved: Callable[[float], None] = lambda count: None,
    ) -> PartWorker: ...
