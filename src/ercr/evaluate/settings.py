"""Reads, writes and compares a run's `settings.json`, which carries a checksum; needs no model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ercr.errors import FileFormatError
from ercr.files.plain import read_plain

FORMAT = 2  # since 2 settings, parts and rows carry checksums
_CHECKSUM = "checksum"
# only for people to read: the fingerprint decides whether the dataset is the same
_INFORMATIVE = "dataset.spec"
_PLUGINS = "plugins"  # named only where there are any; runs from before there were plugins have none


def with_checksum(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they are stored."""
    plain = {key: value for key, value in settings.items() if key != _CHECKSUM}
    return {**plain, _CHECKSUM: _checksum(plain)}


def as_bytes(settings: Mapping[str, Any]) -> bytes:
    return (json.dumps(settings, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a run, or an error that says what is wrong; those of earlier versions have no checksum."""
    found = read_json(path)
    if not isinstance(found.get("format"), int):
        raise FileFormatError(f"{path} is not the settings file of an evaluation: it has no format.")
    checked = _CHECKSUM in found or found["format"] != 1
    if checked and found.get(_CHECKSUM) != with_checksum(found)[_CHECKSUM]:
        raise FileFormatError(f"{path} is damaged (wrong checksum): evaluate into a new folder.")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a regular file."""
    try:
        found = json.loads(read_plain(path, error=FileFormatError).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path} cannot be read: {error}.") from None
    if not isinstance(found, dict):
        raise FileFormatError(f"{path} is not a file of an evaluation: it holds no JSON object.")
    return found


def _checksum(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One text `name was …, is now …` per difference; keys that only `old` has (of the loaded model) are ignored."""
    return _compare({_PLUGINS: {}, **old}, {_PLUGINS: {}, **new}, "")


def _compare(old: Any, new: Any, name: str) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict) and name != _PLUGINS:
        inner = [_compare(old.get(key), value, f"{name}.{key}".lstrip(".")) for key, value in new.items()]
        return [line for lines in inner for line in lines]
    return (
        [] if old == new or name in (_INFORMATIVE, _CHECKSUM) else [f"{name} was {_shown(old)}, is now {_shown(new)}"]
    )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value) or "nothing"
    if isinstance(value, dict) and "spec" not in value:
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items()) or "nothing"
    return str(value["spec"] if isinstance(value, dict) else value)
