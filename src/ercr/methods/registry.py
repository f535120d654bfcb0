"""All methods by name; each registers itself from its own file."""

from __future__ import annotations

from typing import Any

from ercr import plugins
from ercr.errors import InputError, UnknownMethod, nearest
from ercr.methods.base import Method, Settings, make_settings

_METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Make a method known by its name; returns it."""
    _METHODS[method.name] = method
    return method


def methods() -> dict[str, Method]:
    """All methods by name; loads every file of this folder and every plugin."""
    plugins.load("ercr.methods", "ercr.methods")
    return dict(sorted(_METHODS.items()))


def resolve(spec: str, **switches: Any) -> tuple[Method, Settings]:
    """A method and its settings from 'name' or 'name:setting=value,setting=value', plus keyword settings."""
    if not isinstance(spec, str):
        raise InputError(f"Name a method by text such as 'ercr:context=tam', not by {type(spec).__name__}.")
    name, _, tail = spec.partition(":")
    known = methods()
    if name not in known:
        raise UnknownMethod(f"There is no method {name!r}: use one of {', '.join(known)}.{nearest(name, known)}")
    given: dict[str, Any] = {}
    for item in filter(None, tail.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"Write a method's setting as name=value, not {item!r}.")
        given[key.strip()] = value.strip()
    return known[name], make_settings(known[name], {**given, **switches})
