"""Which adapter handles which model type; each family registers itself in its own file."""

from __future__ import annotations

from typing import TypeVar

from ercr import plugins
from ercr.errors import UnsupportedModel
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


def adapter_class(model_type: str | None) -> type[Adapter]:
    """The adapter for a `config.model_type`, or an error that names the supported families."""
    known = adapters()
    if model_type in known:
        return known[model_type]
    families = ", ".join(sorted({adapter.family for adapter in known.values()}))
    raise UnsupportedModel(
        f"Models of type {model_type!r} are not supported: use a model of {families}, or write an adapter "
        f"(one file that subclasses ercr.models.Adapter; docs/extending.md shows how)."
    )
