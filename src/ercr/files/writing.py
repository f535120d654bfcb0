"""Atomic writes: to a temporary file in the same folder, synced, then renamed; never over a pipe or a device."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ercr.errors import OutputError

_UNFINISHED = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.ercr", re.DOTALL)
_LONGEST = 50  # characters of the target's name in the temporary name, which may have 255 bytes


def write_atomic(path: Path, data: bytes) -> None:
    """Write a complete file or nothing."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file to write to; at the end it is synced and renamed to the target.

    Readers never find half a file, even after a kill or a power cut; a kill can leave the temporary file behind
    (`unfinished_name`). If the path is a symbolic link, the link stays and its target is replaced.
    """
    target = check_writable(path)
    with _reported(path), _temporary_name(target) as name:
        with _new_file(name) as file:
            yield file
        os.replace(name, target)


def write_new(path: Path, data: bytes) -> bool:
    """Write a complete file under a new name; return False and change nothing if the name exists by then."""
    target = check_writable(path)
    with _reported(path), _temporary_name(target) as name:
        with _new_file(name) as file:
            file.write(data)
        try:
            os.link(name, target)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            os.replace(name, target)
    return True


def unfinished_name(name: str) -> str | None:
    """The target's name, if this is the name of one of our temporary files; else None."""
    found = _UNFINISHED.fullmatch(name)
    return found["name"] if found else None


def check_writable(path: Path) -> Path:
    """The file to write: the path, or the target of a link. Raises early if it cannot or must not be written."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except (OSError, ValueError) as error:  # a link to itself, a name that is too long or holds a NUL
        raise OutputError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.") from None
    if stat.S_ISDIR(mode):
        raise OutputError(f"{path} is a folder: give a file name in it.")
    if not stat.S_ISREG(mode):
        raise OutputError(f"{path} is a pipe or a device, not a regular file: give the name of a file.")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    folder = target.parent
    if not folder.is_dir():
        raise OutputError(f"The folder {folder} does not exist: create it first.")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"The folder {folder} is not writable: choose another one.")
    return target


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None


@contextmanager
def _temporary_name(target: Path) -> Iterator[Path]:
    """A temporary name in the target's folder; a file of that name is removed at the end unless it was renamed."""
    name = target.with_name(f".{target.name[:_LONGEST]}.{secrets.token_hex(8)}.ercr")
    try:
        yield name
    finally:
        name.unlink(missing_ok=True)


@contextmanager
def _new_file(name: Path) -> Iterator[BinaryIO]:
    with open(name, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
