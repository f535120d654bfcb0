"""Names that a package hands on from its modules, which are imported when a name is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def handed_on(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A module's `__getattr__`: each name is read from the module that holds it, or is that module."""

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(homes[name])
        return module if homes[name] == f"{package}.{name}" else getattr(module, name)

    return find
