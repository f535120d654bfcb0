"""Writing files whole or not at all: beside the name, to the disk, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ercr.errors import OutputError


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write beside the target; at the end it is on the disk and takes the target's name.

    Nobody ever finds half a file, also after a kill or a power cut; a kill can leave a file `.NAME.*` behind.
    """
    check_writable(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)  # mkstemp makes private files; a result is an ordinary one
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from None


def check_writable(path: Path) -> None:
    """Refuse early a place where nothing can be written, before any work is done."""
    folder = path.parent
    if path.is_dir():
        raise OutputError(f"{path} is a folder: give a file name in it.")
    if not folder.is_dir():
        raise OutputError(f"The folder {folder} does not exist: create it first.")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"The folder {folder} cannot be written to.")
