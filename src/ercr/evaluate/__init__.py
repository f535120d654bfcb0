"""From a dataset and a model to rows on disk: resumable, on one machine or many; tables are made in `report/`."""

from ercr.evaluate.api import evaluate
from ercr.evaluate.run import Run
from ercr.evaluate.worker import Done

__all__ = ["Done", "Run", "evaluate"]
