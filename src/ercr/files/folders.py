"""Output folders of commands: they must be empty or hold the results of the same command."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ercr.errors import InputError, OutputError
from ercr.files.plain import read_plain
from ercr.files.writing import unfinished_name

_HEAD = 2**16  # bytes at the start of a result file that name this package
_DESKTOP_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})  # file managers leave these
_NFS = ".nfs"  # prefix of files that NFS keeps while a replaced file is still open


def make_results_folder(folder: Path, written: Collection[str], mark: str, beside: Collection[str] = ()) -> None:
    """Make the folder; raise if it holds files of others, or if files of others would be replaced.

    `written` are the names that the command writes. `mark`, one of them, shows that ercr wrote the folder; without it
    files with these names belong to somebody else. Files named in `beside` may be there and are not written.
    """
    found = entries(folder)
    own = {*written} if _is_ours(folder / mark) else set[str]()
    known = {*own, *beside}
    check_no_others(folder, [name for name in found if name not in known and unfinished_name(name) not in written])
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be made: {error.strerror or error}.") from None


def _is_ours(mark: Path) -> bool:
    """Whether a file names this package at its start, as our result files do."""
    try:
        return b'"ercr"' in read_plain(mark)[:_HEAD]
    except InputError:
        return False


def entries(folder: Path) -> list[str]:
    """Names in a folder, without those that file managers and NFS leave there; empty if there is no folder."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be used: {error.strerror or error}.") from None
    return [name for name in names if name not in _DESKTOP_FILES and not name.startswith(_NFS)]


def check_no_others(folder: Path, others: Collection[str]) -> None:
    """Raise if there are files of others in the folder."""
    for name in others:
        raise OutputError(f"{folder} holds other files ({name}): give a new or an empty folder.")
