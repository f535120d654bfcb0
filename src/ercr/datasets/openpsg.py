"""OpenPSG: panoptic scene graphs as descriptions of about three sentences."""

from __future__ import annotations

from ercr.datasets.listed import Listed
from ercr.datasets.registry import register


@register("openpsg")
def open_openpsg(where: str) -> Listed:
    return Listed(where, "Write a description for this image using around three sentences:")
