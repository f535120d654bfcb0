"""The call `evaluate`: checks the options, locks the run's folder, computes the missing parts and joins them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ercr.datasets.registry import open_dataset
from ercr.datasets.sample import Sample
from ercr.errors import InputError, choose
from ercr.evaluate.job import Evaluation
from ercr.evaluate.plan import Plan, from_options
from ercr.evaluate.run import Run
from ercr.evaluate.schema import schema_of
from ercr.evaluate.work import Done, Work
from ercr.explaining.sizes import BatchSize
from ercr.methods.lists import split_methods

if TYPE_CHECKING:
    from ercr.explaining.explainer import Explainer

Progress = Callable[["Done"], None]


def evaluate(
    model: str | Explainer,
    dataset: str | Sequence[Sample],
    methods: str | Sequence[str],
    out: str | os.PathLike[str],
    *,
    engine: Literal["local", "ray"] = "local",
    workers: int = 1,
    batch_size: BatchSize = "auto",
    retry_failed: bool = False,
    begin: Callable[[int, int], None] | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = warnings.warn,
    moved: Callable[[float], None] = lambda samples: None,
    **options: Any,
) -> Run:
    """Evaluate methods on a dataset into the folder `out`; parts that exist are kept, only missing ones are computed.

    `model` is a name or an `Explainer`, `dataset` is `name:where` or a sequence of samples, `methods` a list such as
    `"cam,tam,ercr"`. Further options are the fields of `Plan` (protocol, faithfulness, limit, …). Samples that failed
    stay failed unless `retry_failed`. Callbacks: `begin(total, done)` gets the numbers of samples, `progress(part)`
    every finished part. In the local engine `moved(samples)` gets the number of samples finished since the last call,
    and 0 when the model is loaded. `say(text)` gets a sentence about each damaged file that is written again.
    """
    plan, samples = _plan(model, dataset, methods, options)
    if engine == "ray" and not isinstance(dataset, str):
        raise InputError("Ray workers load model and dataset themselves: give both by name.")
    run = Run(Path(out), schema_of(plan.task))
    carry_out(
        Evaluation(plan), model, samples, run, engine, workers, batch_size, retry_failed, begin, progress, say, moved
    )
    return run


def carry_out(
    work: Work,
    model: str | Explainer,
    samples: Sequence[Any],
    run: Run,
    engine: str,
    workers: int,
    batch_size: BatchSize,
    retry_failed: bool,
    begin: Callable[[int, int], None] | None,
    progress: Progress | None,
    say: Callable[[str], None],
    moved: Callable[[float], None],
) -> None:
    """Compute the parts of a plan that are missing in its folder, and join all parts."""
    choose("engine", engine, "local", "ray")
    if workers < 1 or (batch_size != "auto" and batch_size < 1):
        raise InputError("workers and batch_size must be at least 1.")
    if workers > 1 and engine == "local":
        raise InputError("Several workers need Ray: set the engine to 'ray'.")
    if engine == "ray" and not isinstance(model, str):
        raise InputError("Ray workers load model and dataset themselves: give both by name.")
    parts = work.parts(samples)
    if not parts:
        raise InputError(f"The dataset {work.source} has no samples: check its folder.")
    with run.locked():
        settings = work.settings(samples)
        run.check(settings)
        run.tidy()
        kept = list(run.whole_parts(parts))
        missing = [number for number in range(len(parts)) if number not in kept]
        if damaged := [str(number) for number in missing if run.part_path(number).exists()]:
            say(f"{run.path}: parts {', '.join(damaged)} are damaged and are computed again.")
        if retry_failed:
            kept = run.forget_failures(kept)
            missing = [number for number in range(len(parts)) if number not in kept]
        if begin is not None:
            begin(work.count(samples), work.count(samples) - sum(len(parts[number]) for number in missing))
        if missing:
            done = _compute(model, samples, work, settings, run, missing, batch_size, engine, workers, moved)
            for part in done:
                run.note(asdict(part))
                if progress is not None:
                    progress(part)
        finished = run.complete and not missing
        if run.finish(parts) and finished:
            say(f"{run.path}: rows.parquet did not match the parts and was written again.")


def _plan(
    model: str | Explainer, dataset: str | Sequence[Sample], methods: str | Sequence[str], options: dict[str, Any]
) -> tuple[Plan, Sequence[Sample]]:
    about_maps = options.get("task", "maps") == "maps"
    if not about_maps and methods:
        raise InputError("The task grounding has no methods: omit them.")
    specs = split_methods([methods] if isinstance(methods, str) else methods) if about_maps else []
    name = model if isinstance(model, str) else model.name
    spec = dataset if isinstance(dataset, str) else type(dataset).__name__
    plan = from_options({"model": name, "dataset": spec, "methods": tuple(specs), **options})
    return plan, open_dataset(dataset) if isinstance(dataset, str) else dataset


def _compute(
    model: str | Explainer,
    samples: Sequence[Any],
    work: Work,
    settings: Mapping[str, Any],
    run: Run,
    missing: Sequence[int],
    batch_size: BatchSize,
    engine: str,
    workers: int,
    moved: Callable[[float], None],
) -> Iterator[Done]:
    if engine == "ray":
        from ercr.evaluate.cluster import run_on_cluster

        return run_on_cluster(work, run, missing, batch_size, workers)
    from ercr.evaluate.local import run_here

    explainer = work.load() if isinstance(model, str) else model
    return run_here(explainer, samples, work, settings, run, missing, batch_size, moved)
