"""Datasets of pictures with prompts and labels, all with one sample type; nothing here runs a model."""

from typing import TYPE_CHECKING

from ercr.datasets.sample import Sample
from ercr.lazy import lazy_attributes

if TYPE_CHECKING:
    from ercr.datasets.scenes import Scenes

__all__ = ["Sample", "Scenes"]

__getattr__ = lazy_attributes(__name__, {"Scenes": "ercr.datasets.scenes"})  # drawing them needs torch
