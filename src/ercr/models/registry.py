"""Which adapter handles which model type; each family registers itself in its own file."""

from __future__ import annotations

from typing import TypeVar

from ercr import plugins
from ercr.models.base import Adapter

_ADAPTERS: dict[str, type[Adapter]] = {}
A = TypeVar("A", bound=type[Adapter])


def register(adapter: A) -> A:
    """Class decorator: use this adapter for the model types that it lists."""
    for model_type in adapter.model_types:
        _ADAPTERS[model_type] = adapter
    return adapter


def adapters() -> dict[str, type[Adapter]]:
    """All adapters by `config.model_type`; every file of `families/` and every plugin is loaded."""
    plugins.load("ercr.families", "ercr.models.families")
    return dict(_ADAPTERS)


def own_adapter(config: object) -> type[Adapter] | None:
    """The adapter that was written for a model's family, or None: then the generic one is asked."""
    found = adapters().get(str(getattr(config, "model_type", None)))
    return found if found is not None and found.suits(config) else None


def family_names() -> str:
    """The families that have an adapter of their own, as a list to read."""
    return ", ".join(sorted({adapter.family for adapter in adapters().values()}))
