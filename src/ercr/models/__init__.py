"""One adapter per model family: model inputs, positions of the visual tokens, geometry, modules."""

from ercr.models.base import Adapter
from ercr.models.inputs import Prepared, ViewKind
from ercr.models.registry import adapters, own_adapter, register

__all__ = ["Adapter", "Prepared", "ViewKind", "adapters", "own_adapter", "register"]
