"""Turns parts of a dataset into rows with one loaded model; a sample that fails affects its own rows only."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from ercr.datasets.sample import Sample, Samples
from ercr.errors import InputError
from ercr.evaluate.plan import Plan, with_model
from ercr.evaluate.rows import Failure, Row, Scorer, failed_rows
from ercr.evaluate.run import Run
from ercr.evaluate.work import Done, Loadable
from ercr.explaining.explainer import Explainer
from ercr.explaining.sizes import BatchSize, Sizes
from ercr.explanation import Explanation
from ercr.methods.registry import resolve
from ercr.metrics.protocol import Protocol
from ercr.trace.memory import free_memory, in_halves

Loaded = tuple[int, "Sample | Failure"]
Batch = Sequence[tuple[int, Sample]]
ByMethod = Sequence["Explanation | Failure"]  # of one sample, in the order of the methods


def load_explainer(plan: Loadable, **more: Any) -> Explainer:
    """The plan's model; on all visible GPUs unless the plan names a device."""
    if plan.device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("There is no CUDA device on this machine: omit the device, or use cpu.")
    placed = plan.device != "auto" or torch.cuda.is_available()
    options: dict[str, Any] = {"device_map": plan.device} if placed else {}
    dtype = None if plan.dtype == "auto" else plan.dtype
    return Explainer.from_pretrained(plan.model, revision=plan.revision, dtype=dtype, **options, **more)


class Worker:
    """Evaluates parts of a run with one model.

    `moved` gets the number of samples finished since the last call; explaining and scoring each count as a fraction.
    """

    def __init__(
        self,
        explainer: Explainer,
        dataset: Sequence[Sample],
        plan: Plan,
        settings: Mapping[str, Any],
        run: Run,
        batch_size: BatchSize,
        moved: Callable[[float], None] = lambda samples: None,
    ) -> None:
        """`settings` is `plan.settings(dataset)`, passed in because it hashes all annotations and is slow."""
        self.explainer, self.plan, self.run, self.moved = explainer, plan, run, moved
        masks = Protocol.parse(plan.protocol).masks
        self.dataset = dataset.reading(masks) if isinstance(dataset, Samples) else dataset
        self.sizes = Sizes(batch_size, explainer.adapter)
        self.parts = plan.parts(dataset)
        self.plain = {m: p for m in plan.methods if (p := without_context(m))} if plan.suppression else {}
        if run.threads is not None:
            torch.set_num_threads(run.threads)  # on a CPU the number of threads affects the last digits
        run.claim(with_model(settings, explainer))
        # pictures are read one at a time, a part ahead of the model
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="ercr-read")
        self._read: dict[int, Future[list[Loaded]]] = {}
        self._left = 0.0  # samples of the part that are not done
        # the share of explaining in the time of a sample: deletion and insertion take many more passes
        self._explaining = 0.1 if plan.budgets else 0.9

    def part(self, number: int, following: int | None = None) -> Done:
        """Compute a part and write it, while a thread reads the samples of the following one."""
        started = time.perf_counter()
        for wanted in (number, following):
            if wanted is not None and wanted not in self._read:
                self._read[wanted] = self._reader.submit(self._load, self.parts[wanted])
        self._left = float(len(self.parts[number]))
        rows = self.rows(self._read.pop(number).result())
        self.run.write_part(number, self.parts[number], rows)
        self._move(self._left)
        failed = len({row["index"] for row in rows if row["status"] == "failed"})
        return Done(number, len(self.parts[number]), failed, round(time.perf_counter() - started, 3))

    def _move(self, samples: float) -> None:
        """Report finished samples; a batch that is halved and repeated never counts more than the part holds."""
        step = min(samples, self._left)
        self._left -= step
        if step > 0:
            self.moved(step)

    def _load(self, indices: Sequence[int]) -> list[Loaded]:
        return [(index, self._sample(index)) for index in indices]

    def _sample(self, index: int) -> Sample | Failure:
        try:
            sample = self.dataset[index]
            if self.plan.answers == "references" and not "".join(sample.references[:1]).strip():
                raise InputError(f"Sample {sample.id} has no reference to explain.")
            return sample
        except Exception as error:
            return Failure.of("input", error)

    def rows(self, loaded: Sequence[Loaded]) -> list[Row]:
        """The rows of some samples, in their order."""
        scorer = Scorer(self.explainer, self.plan)
        found = self._explained([(index, sample) for index, sample in loaded if isinstance(sample, Sample)])
        rows = []
        for index, sample in loaded:
            if isinstance(sample, Failure):
                name = self.dataset.name(index) if isinstance(self.dataset, Samples) else str(index)
                rows += failed_rows(index, name, self.plan.methods, sample)
                continue
            plain = {method: found[index][partner] for method, partner in self.plain.items()}
            own = {method: found[index][method] for method in self.plan.methods}
            # a method counts as failed if the map that it is compared with failed
            own |= {method: other for method, other in plain.items() if isinstance(other, Failure)}
            rows += scorer.rows(index, sample, own, plain)
            self._move(1 - self._explaining)
        return rows

    def _explained(self, batch: Batch) -> dict[int, dict[str, Explanation | Failure]]:
        """Explanations by sample and method. A failing batch is halved until the sample, then the method, is found."""
        specs = list(dict.fromkeys([*self.plan.methods, *self.plain.values()]))

        def run(part: Batch) -> list[ByMethod]:
            return [*self._attempt(part, specs)] if len(part) > 1 else [self._single(part[0], specs)]

        found = in_halves(run, batch, divides=_may_be_one_samples) if batch else []
        return {index: dict(zip(specs, own, strict=True)) for (index, _), own in zip(batch, found, strict=True)}

    def _single(self, sample: tuple[int, Sample], specs: Sequence[str]) -> ByMethod:
        """One sample by several methods; if they fail together, by each of them."""
        try:
            return self._attempt([sample], specs)[0]
        except Exception as error:
            failure = Failure.of("model", error)
        if failure.memory:
            free_memory()  # after the handler, as the error holds the tensors of the failed attempt
        return [failure] if len(specs) == 1 else [self._single(sample, [spec])[0] for spec in specs]

    def _attempt(self, batch: Batch, specs: Sequence[str]) -> list[list[Explanation]]:
        """Explanations [sample][method]."""
        answers = [sample.references[0] for _, sample in batch] if self.plan.answers == "references" else None
        return self.explainer.explain_many(
            [sample.image for _, sample in batch],
            [sample.prompt for _, sample in batch],
            methods=specs,
            answers=answers,
            max_new_tokens=self.plan.max_new_tokens,
            batch_size=self.sizes,
            done=lambda count: self._move(count * self._explaining),
        )


def _may_be_one_samples(error: Exception) -> bool:
    """Any error may be a single sample's, but for that of a lost GPU: `Failure.of` raises it, which ends the run."""
    Failure.of("model", error)
    return True


def without_context(spec: str) -> str | None:
    """The same method without its context residual; None if it has none."""
    _, settings = resolve(spec)
    if getattr(settings, "context", "none") == "none":
        return None
    return f"{spec}{',' if ':' in spec else ':'}context=none"
