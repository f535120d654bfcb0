"""Names that a package exports from its modules, which are imported when a name is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """A `__getattr__` for a package: `modules` maps each name to the module that defines it, or that it is."""

    def find(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    return find
