"""Folders that commands fill with results: empty ones, or those that the same command filled before."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from ercr.errors import InputError, OutputError
from ercr.files.plain import read_plain
from ercr.files.writing import unfinished_name

_HEAD = 2**16  # bytes of a file in which it says whose it is
_LITTER = frozenset({".DS_Store", "Thumbs.db", "desktop.ini"})  # what showing a folder leaves in it
_OPEN = ".nfs"  # how network file systems keep a file that was replaced while somebody reads it


def make_results_folder(folder: Path, written: Collection[str], mark: str, beside: Collection[str] = ()) -> None:
    """Make the folder, or refuse one in which somebody else's files lie or would be replaced.

    `written` are the names that the command writes, of which `mark` is the first and says who wrote it: without it
    files with the others' names are somebody else's. Those named in `beside` may lie there and are not written.
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
    """Whether a result file names this package in its head, as ours do."""
    try:
        return b'"ercr"' in read_plain(mark)[:_HEAD]
    except InputError:
        return False


def entries(folder: Path) -> list[str]:
    """What lies in a folder, but for what desktops and file systems leave there; nothing if there is no folder."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be used: {error.strerror or error}.") from None
    return [name for name in names if name not in _LITTER and not name.startswith(_OPEN)]


def check_no_others(folder: Path, others: Collection[str]) -> None:
    """Refuse the folder if there are any files in it that are not its own."""
    for name in others:
        raise OutputError(f"{folder} holds other files ({name}): give a new folder.")
