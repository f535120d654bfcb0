"""GranDf: grounded descriptions of about two sentences with human masks."""

from __future__ import annotations

from ercr.datasets.listed import Listed
from ercr.datasets.registry import register


@register("grandf")
def open_grandf(where: str) -> Listed:
    return Listed(where, "Write a description for this image using around two sentences:")
