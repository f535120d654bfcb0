"""The engine for many processes or machines, by Ray Data: each worker has its own model and writes its parts.

Parts are the same files as in the local engine, on a file system that all machines share. So the rows are the same,
and a run started in one engine can be finished in the other. Ray restarts workers that die and repeats their part.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch

from ercr import plugins
from ercr.errors import ErcrError, InputError, missing
from ercr.evaluate.run import Run
from ercr.evaluate.work import Done, PartWorker, Work
from ercr.explaining.sizes import BatchSize

_STORE = 128 * 2**20  # bytes of Ray's object store: rows never pass through it
_BLOCKS = 1000


def run_on_cluster(work: Work, run: Run, missing: Sequence[int], batch_size: BatchSize, workers: int) -> Iterator[Done]:
    """Compute the missing parts in any order; needs Ray."""
    ray = _ray()
    started = _connect(ray)
    try:
        resources = ray.cluster_resources()
        gpus = 0 if work.device.startswith("cpu") else resources.get("GPU", 0)
        count = min(workers, len(missing), max(1, int(gpus or resources.get("CPU", 1))))
        numbers = ray.data.from_items(list(missing), override_num_blocks=min(len(missing), _BLOCKS))
        results = numbers.map_batches(
            _PartWorker,
            fn_constructor_args=(work, str(run.path.resolve()), batch_size, torch.get_num_threads(), plugins.files()),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
            num_gpus=1 if gpus else 0,
            num_cpus=1,
        )
        for row in results.iter_rows():
            message, misused = row.pop("error"), row.pop("misused")
            if message:
                raise (InputError if misused else ErcrError)(message)
            yield Done(**row)
    except ray.exceptions.RayError as error:
        raise ErcrError(f"Ray stopped with an error: {' '.join(str(error).split())[-300:]}") from error
    finally:
        if started:
            ray.shutdown()


class _PartWorker:
    """Runs in a worker process: loads the model once, then turns part numbers into part files."""

    def __init__(
        self, work: Work, folder: str, batch_size: BatchSize, threads: int, plugin_files: Sequence[str]
    ) -> None:
        self.work, self.folder, self.batch_size = work, folder, batch_size
        self.plugin_files = plugin_files  # passed on, because a worker's environment may not name them
        self.worker: PartWorker | None = None
        torch.set_num_threads(threads)  # Ray would leave one

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Time and failures of the part. An error that a restart would not repair is returned as a value."""
        number = int(batch["item"][0])
        try:
            self.worker = self.worker or self._load()
            found = {**asdict(self.worker.part(number)), "error": "", "misused": False}
        except ErcrError as error:
            nothing = asdict(Done(number, 0, 0, 0.0))
            found = {**nothing, "error": str(error), "misused": isinstance(error, InputError)}
        return {key: [value] for key, value in found.items()}

    def _load(self) -> PartWorker:
        plugins.load_files(self.plugin_files)
        explainer, dataset = self.work.load(), self.work.open()
        run = Run(self.folder, self.work.schema, self.work.command)
        return self.work.worker(explainer, dataset, self.work.settings(dataset), run, self.batch_size)


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise missing("The engine 'ray' needs Ray", "ray") from None
    return ray


def _connect(ray: Any) -> bool:
    """Join the cluster of RAY_ADDRESS or of this machine, else start one; True if it was started here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if ray.is_initialized():
        return False
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        ray.init(address="local", include_dashboard=False, object_store_memory=_STORE, **quiet)
    return True
