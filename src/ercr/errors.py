"""The exceptions a user can meet; each message is one sentence that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.util import find_spec

from ercr.printable import one_line


class ErcrError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 1

    def __str__(self) -> str:
        # messages quote file names and answers, which could hold control characters for the terminal
        return one_line(super().__str__())


class InputError(ErcrError, ValueError):
    """What the caller passed cannot be used: a setting, a prompt, an answer."""

    exit_code = 2


class ImageError(InputError):
    """The image cannot be opened or cannot be shown to the model."""


class WordNotFound(InputError, LookupError):
    """A word was asked for that the answer does not contain."""


class UnknownMethod(InputError):
    """No attribution method has that name."""


class PluginError(InputError):
    """A file or package with methods, families or datasets of the user's own cannot be loaded."""


class UnsupportedModel(InputError):
    """No adapter exists for this kind of model."""


class CheckpointError(InputError):
    """A checkpoint cannot be found, or a file of it is missing or damaged."""


class NeedsConversion(CheckpointError):
    """A checkpoint of this type exists only with remote code, and `ercr convert` can rewrite it."""

    def __init__(self, message: str, model_type: str) -> None:
        super().__init__(message)
        self.model_type = model_type


class OutputError(InputError):
    """A result cannot be written where it was asked for."""


class FileFormatError(InputError):
    """A saved explanation cannot be read back."""


class ModelStateError(ErcrError):
    """The model ran, but what it computed cannot be explained (NaN, infinity)."""


class Cancelled(ErcrError):
    """A run was stopped because nobody waits for its result any more."""


class MissingExtra(InputError, ImportError):
    """Optional packages are missing that this function needs."""


def missing(what: str, extra: str) -> MissingExtra:
    """The error for a missing extra; it names the installation from source, because the package is not on PyPI."""
    place = "./zoo" if extra == "zoo" else f"'.[{extra}]'"
    return MissingExtra(f"{what}: run pip install {place} in ercr's source folder.")


def require(what: str, extra: str, *modules: str) -> None:
    """Raise early if a module of an extra is not installed; the modules are only looked up, not imported."""
    if any(find_spec(module) is None for module in modules):
        raise missing(what, extra)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message, ' Did you mean …?'; empty if no known name is similar."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def choose(name: str, value: object, *allowed: object) -> None:
    """Raise unless a setting has one of the allowed values."""
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(str(a) for a in allowed)}, not {value!r}.")
