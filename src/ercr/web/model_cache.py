"""The models that a server offers: named at its start, and each loaded once, on its first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from ercr.errors import InputError
from ercr.explaining.explainer import Explainer


class ModelCache:
    """Explainers by name. A name that was not given at the start is never loaded."""

    def __init__(self, names: Sequence[str], load: Callable[[str], Explainer]) -> None:
        from ercr.zoo import locate

        if not names:
            raise InputError("Name at least one model to serve.")
        for name in names:
            locate(name)
        self._load = load
        self._locks = {_label(name, names): (name, threading.Lock()) for name in names}
        self._loaded: dict[str, Explainer] = {}

    @property
    def names(self) -> list[str]:
        return list(self._locks)

    def loaded(self, name: str) -> bool:
        return name in self._loaded

    def get(self, name: str) -> Explainer:
        """The explainer of that name; while one request loads it, other requests wait."""
        if name not in self._locks:
            raise InputError(f"This server has no model {name!r}; it has {', '.join(self._locks)}.")
        source, lock = self._locks[name]
        with lock:
            if name not in self._loaded:
                explainer = self._load(source)
                explainer.name = name  # reports show it, so it must not be a path of the server
                self._loaded[name] = explainer
            return self._loaded[name]


def _label(name: str, names: Sequence[str]) -> str:
    """The name that visitors see: of a folder its last part, so that no page shows a path of the server."""
    if not Path(name).is_dir():
        return name
    short = Path(name).resolve().name
    same = [other for other in names if Path(other).is_dir() and Path(other).resolve().name == short]
    return short if len(same) == 1 else f"{short}-{same.index(name) + 1}"
