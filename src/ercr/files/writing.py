"""Writing files whole or not at all: beside the name, to the disk, then renamed; never over a pipe or a device."""

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
_LONGEST = 50  # characters of the target's name in the unfinished file's: file systems take 255 bytes


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write beside the target; at the end it is on the disk and takes the target's name.

    Nobody ever finds half a file, also after a kill or a power cut; a kill can leave an unfinished file behind
    (`unfinished_name`). Where the path is a symbolic link, the link stays and the file that it leads to is replaced.
    """
    target = check_writable(path)
    with _reported(path), _beside(target) as name:
        with _new_file(name) as file:
            yield file
        os.replace(name, target)


def write_new(path: Path, data: bytes) -> bool:
    """Write a file, whole, under a name that is free; False, and nothing is changed, if another was faster."""
    target = check_writable(path)
    with _reported(path), _beside(target) as name:
        with _new_file(name) as file:
            file.write(data)
        try:
            os.link(name, target)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            os.replace(name, target)
    return True


def unfinished_name(name: str) -> str | None:
    """Of which file something with this name is the unfinished writing; None if it is none of ours."""
    found = _UNFINISHED.fullmatch(name)
    return found["name"] if found else None


def check_writable(path: Path) -> Path:
    """The file to write: the path, or what it leads to as a link. Refuses early what cannot or must not be written."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except (OSError, ValueError) as error:  # a link to itself, a name that is too long or holds a NUL
        raise OutputError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.") from None
    if stat.S_ISDIR(mode):
        raise OutputError(f"{path} is a folder: give a file name in it.")
    if not stat.S_ISREG(mode):
        raise OutputError(f"{path} is a pipe or a device, not a plain file: give the name of a file.")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    folder = target.parent
    if not folder.is_dir():
        raise OutputError(f"The folder {folder} does not exist: create it first.")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"The folder {folder} cannot be written to.")
    return target


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """The name of a new file in the target's folder, which is gone at the end unless it was renamed."""
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
