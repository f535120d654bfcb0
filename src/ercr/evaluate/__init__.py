"""From a dataset and a model to rows on disk: resumable, on one machine or many; `report/` makes the tables."""

from typing import TYPE_CHECKING

from ercr.lazy import lazy_attributes

if TYPE_CHECKING:
    from ercr.evaluate.api import evaluate
    from ercr.evaluate.run import Run
    from ercr.evaluate.work import Done

__all__ = ["Done", "Run", "evaluate"]

# imported on first use: a report reads runs without loading what computes them
__getattr__ = lazy_attributes(
    __name__, {"Done": "ercr.evaluate.work", "Run": "ercr.evaluate.run", "evaluate": "ercr.evaluate.api"}
)
