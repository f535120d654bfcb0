"""An evaluation as the engines see it: its plan, with what opens, loads and computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ercr.datasets.registry import open_dataset
from ercr.datasets.sample import Sample
from ercr.evaluate.plan import Plan
from ercr.evaluate.schema import schema_of
from ercr.evaluate.worker import Worker, load_explainer
from ercr.explaining.explainer import Explainer


@dataclass(frozen=True)
class Evaluation:
    """The work of an evaluation."""

    plan: Plan
    command: str = "ercr evaluate"

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.plan.task)

    @property
    def source(self) -> str:
        return self.plan.dataset

    @property
    def device(self) -> str:
        return self.plan.device

    def open(self) -> Sequence[Sample]:
        return open_dataset(self.plan.dataset)

    def count(self, samples: Sequence[Sample]) -> int:
        return self.plan.count(samples)

    def parts(self, samples: Sequence[Sample]) -> list[range]:
        return self.plan.parts(samples)

    def settings(self, samples: Sequence[Sample]) -> dict[str, Any]:
        return self.plan.settings(samples)

    def load(self) -> Explainer:
        return load_explainer(self.plan)

    def worker(self, explainer: Explainer, samples: Sequence[Sample], *rest: Any) -> Worker:
        if self.plan.task == "grounding":
            from ercr.evaluate.grounding import GroundingWorker

            return GroundingWorker(explainer, samples, self.plan, *rest)
        return Worker(explainer, samples, self.plan, *rest)
