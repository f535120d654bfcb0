"""A loaded model that turns parts of a dataset into rows: a bad sample costs its own rows, never the part."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ercr.datasets.sample import Sample, Samples
from ercr.errors import ErcrError, InputError
from ercr.evaluate.memory import device_lost, free_memory, guess_batch_size
from ercr.evaluate.plan import Plan
from ercr.evaluate.rows import Failure, Row, Scorer, failed_rows
from ercr.evaluate.run import Run
from ercr.explainer import Explainer
from ercr.explanation import Explanation
from ercr.methods.registry import resolve

Batch = list[tuple[int, Sample]]


@dataclass(frozen=True)
class Done:
    """A part that is on the disk, and what it took."""

    part: int
    samples: int
    failed: int  # samples with a failed method
    seconds: float
    batch_size: int


def load_explainer(plan: Plan) -> Explainer:
    """The plan's model; on all GPUs that are visible unless the plan names a device."""
    import torch

    if plan.device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("There is no CUDA device here: leave the device away, or use cpu.")
    placed = plan.device != "auto" or torch.cuda.is_available()
    options: dict[str, Any] = {"device_map": plan.device} if placed else {}
    dtype = None if plan.dtype == "auto" else plan.dtype
    return Explainer.from_pretrained(plan.model, revision=plan.revision, dtype=dtype, **options)


class Worker:
    """Evaluates parts with one model; `batch_size` None means a guess."""

    def __init__(
        self, explainer: Explainer, dataset: Sequence[Sample], plan: Plan, run: Run, batch_size: int | None
    ) -> None:
        self.explainer, self.dataset, self.plan, self.run = explainer, dataset, plan, run
        self.parts = plan.parts(dataset)
        self.scorer = Scorer(explainer, plan)
        self.plain = {m: p for m in plan.methods if (p := without_context(m))} if plan.suppression else {}
        self.asked = "auto" if batch_size is None else str(batch_size)
        self.size = batch_size or 0  # 0: not guessed yet
        self.begun = False

    def part(self, number: int) -> Done:
        """Compute a part and write it."""
        self._begin(number)
        started = time.perf_counter()
        indices = self.parts[number]
        rows = self.rows(indices)
        notes = {"asked": self.asked, "batch_size": str(self.size), "pictures": str(self.scorer.pictures)}
        self.run.write_part(number, rows, notes)
        failed = len({row["index"] for row in rows if row["status"] == "failed"})
        return Done(number, len(indices), failed, time.perf_counter() - started, self.size)

    def _begin(self, number: int) -> None:
        """Go on with the batch size of the part before, so that a resumed run makes the batches it would have made."""
        if self.begun:
            return
        self.begun = True
        notes = self.run.part_notes(number - 1) if number else {}
        if notes.get("asked") == self.asked:
            self.size, self.scorer.pictures = int(notes["batch_size"]), int(notes["pictures"])
        elif not self.size:
            self.size = guess_batch_size(self.explainer.adapter.device, self.plan.part_size)

    def rows(self, indices: Sequence[int]) -> list[Row]:
        """The rows of some samples, in their order."""
        found: dict[int, list[Row]] = {}
        loaded: Batch = []
        for index in indices:
            try:
                loaded.append((index, self.dataset[index]))
            except Exception as error:
                name = self.dataset.name(index) if isinstance(self.dataset, Samples) else str(index)
                found[index] = failed_rows(index, name, self.plan.methods, Failure.of("input", error))
        while loaded:
            batch, loaded = loaded[: self.size], loaded[self.size :]
            found |= self._batch(batch)
        return [row for index in indices for row in found[index]]

    def _batch(self, batch: Batch) -> dict[int, list[Row]]:
        """Rows of a batch: in halves where memory is short, one by one where a sample is bad."""
        specs = list(dict.fromkeys([*self.plan.methods, *self.plain.values()]))
        result = self._attempt(batch, specs)
        if not isinstance(result, Failure):
            pairs = zip(batch, result, strict=True)
            return {i: self._rows(i, sample, dict(zip(specs, found, strict=True))) for (i, sample), found in pairs}
        free_memory()
        if len(batch) == 1:
            return {batch[0][0]: self._apart(*batch[0], specs, result)}
        step = (len(batch) + 1) // 2 if result.memory else 1
        if result.memory:
            self.size = min(self.size, step)
        found: dict[int, list[Row]] = {}
        for start in range(0, len(batch), step):
            found |= self._batch(batch[start : start + step])
        return found

    def _apart(self, index: int, sample: Sample, specs: Sequence[str], failure: Failure) -> list[Row]:
        """Rows of a sample on which some method fails: every method alone."""
        if len(specs) == 1:
            return failed_rows(index, sample.id, self.plan.methods, failure)
        found: dict[str, Explanation | Failure] = {}
        for spec in specs:
            alone = self._attempt([(index, sample)], [spec])
            found[spec] = alone if isinstance(alone, Failure) else alone[0][0]
            if isinstance(alone, Failure):
                free_memory()
        return self._rows(index, sample, found)

    def _attempt(self, batch: Batch, specs: Sequence[str]) -> list[list[Explanation]] | Failure:
        """Explanations [sample][method]. Errors come back as values, so that nothing holds on to their tensors."""
        try:
            answers = [_reference(sample) for _, sample in batch] if self.plan.answers == "references" else None
            return self.explainer.explain_many(
                [sample.image for _, sample in batch],
                [sample.prompt for _, sample in batch],
                methods=specs,
                answers=answers,
                max_new_tokens=self.plan.max_new_tokens,
                batch_size=len(batch),
            )
        except Exception as error:
            if device_lost(error):
                raise ErcrError(f"The GPU failed ({error}); what was finished is kept.") from error
            return Failure.of("model", error)

    def _rows(self, index: int, sample: Sample, found: dict[str, Explanation | Failure]) -> list[Row]:
        """Rows by method; a method fails with the map it is compared to."""
        plain = {method: found[partner] for method, partner in self.plain.items()}
        own = {method: found[method] for method in self.plan.methods}
        own |= {method: other for method, other in plain.items() if isinstance(other, Failure)}
        return self.scorer.rows(index, sample, own, plain)


def without_context(spec: str) -> str | None:
    """The same method without its context residual; None where it has none."""
    _, settings = resolve(spec)
    if getattr(settings, "context", "none") == "none":
        return None
    return f"{spec}{',' if ':' in spec else ':'}context=none"


def _reference(sample: Sample) -> str:
    if not sample.references:
        raise InputError(f"Sample {sample.id} has no reference to explain.")
    return sample.references[0]
