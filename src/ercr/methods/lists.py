"""Parses lists of methods from the command line: `cam,tam,ercr:context=tam,views=1`."""

from __future__ import annotations

from collections.abc import Iterable

from ercr.errors import InputError


def split_methods(texts: Iterable[str]) -> list[str]:
    """The methods of one or more lists, without repetitions, in the given order.

    A comma begins a new method, unless a setting follows it: `name=value` without a colon before the `=` belongs to
    the method before it.
    """
    found: list[str] = []
    for text in texts:
        first = len(found)
        for item in filter(None, (part.strip() for part in text.split(","))):
            key, equals, _ = item.partition("=")
            if not equals or ":" in key:
                found.append(item)
            elif len(found) == first:
                raise InputError(f"A list of methods must begin with a method, not with the setting {item!r}.")
            else:
                found[-1] += ("," if ":" in found[-1] else ":") + item
    if not found:
        raise InputError("Name at least one method, such as cam,tam,ercr.")
    return list(dict.fromkeys(found))
