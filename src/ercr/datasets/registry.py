"""Datasets by name: `coco:FOLDER`, `scenes:200`. Each registers itself from its own file; nothing here runs a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ercr import plugins
from ercr.datasets.sample import Sample
from ercr.errors import InputError, nearest

Opener = Callable[[str], Sequence[Sample]]
_OPENERS: dict[str, Opener] = {}


def register(name: str) -> Callable[[Opener], Opener]:
    """Decorator: the function opens datasets of this name; it gets the part of the spec after the colon."""

    def keep(opener: Opener) -> Opener:
        _OPENERS[name] = opener
        return opener

    return keep


def datasets() -> dict[str, Opener]:
    """All datasets; imports every module of this folder (a new dataset is one new file) and the plugins."""
    plugins.load("ercr.datasets", "ercr.datasets")
    return dict(sorted(_OPENERS.items()))


def open_dataset(spec: str) -> Sequence[Sample]:
    """The samples of `name:where`; each one is read on access."""
    name, _, where = spec.partition(":")
    known = datasets()
    if name not in known:
        raise InputError(f"There is no dataset {name!r}; there are {', '.join(known)}.{nearest(name, known)}")
    return known[name](where)
