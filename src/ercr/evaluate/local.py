"""The engine for one process: parts one after another with one model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ercr.datasets.sample import Sample
from ercr.evaluate.plan import Plan, with_model
from ercr.evaluate.run import Run
from ercr.evaluate.worker import Done, Worker
from ercr.explainer import Explainer


def run_here(
    explainer: Explainer, dataset: Sequence[Sample], plan: Plan, run: Run, missing: Sequence[int], batch: int | None
) -> Iterator[Done]:
    """Compute the missing parts in order."""
    run.claim(with_model(plan.settings(dataset), explainer))
    worker = Worker(explainer, dataset, plan, run, batch)
    for number in missing:
        yield worker.part(number)
