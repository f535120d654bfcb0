"""Parses the part of a dataset spec after the colon: a folder and options, as in `FOLDER,split=val2017`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ercr.errors import InputError, nearest

_LAST = re.compile(r"(?s)(.*),\s*([A-Za-z_]+)\s*=([^,=/\\]*)")


def split_options(where: str, known: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The folder and its options. An existing folder whose name looks like this is used as it is."""
    options: dict[str, str] = {}
    folder = where
    while (found := _LAST.fullmatch(folder)) and not Path(folder).expanduser().is_dir():
        folder, name, value = found.groups()
        if name not in known:
            raise InputError(
                f"There is no dataset option {name!r}; there are {', '.join(known)}.{nearest(name, known)}"
            )
        if not value.strip() or name in options:
            raise InputError(f"Give the option {name!r} once, and with a value, as in {name}=….")
        options[name] = value.strip()
    return folder, options


def choose_split(found: Sequence[str], wanted: str | None, where: str) -> str:
    """The requested split, or the only one; else an error that says how to choose."""
    there = ", ".join(found)
    if wanted is not None and wanted not in found:
        raise InputError(f"{where} has no split {wanted!r}; it has {there}.{nearest(wanted, found)}")
    if wanted is None and len(found) > 1:
        raise InputError(f"{where} has several splits ({there}): choose one, as in {where},split={found[-1]}.")
    return wanted if wanted is not None else found[0]
