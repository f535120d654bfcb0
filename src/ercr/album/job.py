"""An album as the engines see it: its plan, with what opens, loads and computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ercr.album.plan import AlbumPlan
from ercr.album.schema import SCHEMA
from ercr.album.sources import Entry, Source, open_source
from ercr.album.worker import AlbumWorker
from ercr.evaluate.worker import load_explainer
from ercr.explaining.explainer import Explainer


@dataclass(frozen=True)
class AlbumJob:
    """The work of an album."""

    plan: AlbumPlan
    schema: pa.Schema = SCHEMA
    command: str = "ercr explain"

    @property
    def source(self) -> str:
        return self.plan.source

    @property
    def device(self) -> str:
        return self.plan.device

    def open(self) -> Source:
        return open_source(self.plan.source)

    def count(self, samples: Sequence[Entry]) -> int:
        return self.plan.count(samples)

    def parts(self, samples: Sequence[Entry]) -> list[range]:
        return self.plan.parts(samples)

    def settings(self, samples: Sequence[Entry]) -> dict[str, Any]:
        return self.plan.settings(samples)

    def load(self) -> Explainer:
        return load_explainer(self.plan, compile=self.plan.compile)

    def worker(self, explainer: Explainer, samples: Sequence[Entry], *rest: Any) -> AlbumWorker:
        return AlbumWorker(explainer, samples, self.plan, *rest)
