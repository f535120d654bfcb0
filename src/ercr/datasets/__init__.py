"""Pictures with questions and exact labels, all as one sample type; nothing here runs a model."""

from .sample import Sample
from .scenes import Scenes

__all__ = ["Sample", "Scenes"]
