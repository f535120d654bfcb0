"""The engine for one process: computes parts one after another with one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ercr.evaluate.run import Run
from ercr.evaluate.work import Done, Work
from ercr.explaining.explainer import Explainer
from ercr.explaining.sizes import BatchSize


def run_here(
    explainer: Explainer,
    dataset: Sequence[Any],
    work: Work,
    settings: Mapping[str, Any],
    run: Run,
    missing: Sequence[int],
    batch_size: BatchSize,
    moved: Callable[[float], None],
) -> Iterator[Done]:
    """Compute the missing parts in order; `moved` is called for every sample."""
    worker = work.worker(explainer, dataset, settings, run, batch_size, moved)
    moved(0)
    for number, following in zip(missing, [*missing[1:], None], strict=True):
        yield worker.part(number, following)
