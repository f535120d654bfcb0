"""Reads files with untrusted names: regular files up to a size, never a pipe or a device."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from ercr.errors import InputError

MOST = 2**29  # bytes of a picture's file; uncompressed ones of the largest size allowed are smaller


def read_plain(path: Path, most: int = MOST, error: type[InputError] = InputError) -> bytes:
    """The bytes of a regular file (links are followed); raises `error` for anything else."""
    with _translated(path, error), open_plain(path, error) as file:
        data = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
    if data is None or len(data) > most:  # a file can grow, and some system files have no size
        raise error(f"{path} is larger than the {most // 2**20:,} MiB allowed: give a smaller file.")
    return data


def open_plain(path: Path, error: type[InputError] = InputError) -> BinaryIO:
    """A regular file of any size, open for reading; raises `error` for anything else."""
    with _translated(path, error), ExitStack() as opened:
        _refuse_others(
            path, os.stat(path).st_mode, error
        )  # before it is opened, because opening a pipe waits for a writer
        file = opened.enter_context(open(path, "rb", opener=_without_waiting))
        _refuse_others(path, os.fstat(file.fileno()).st_mode, error)
        opened.pop_all()  # the caller closes it
    return file


@contextmanager
def _translated(path: Path, error: type[InputError]) -> Iterator[None]:
    """Reasons why a file cannot be read, as one sentence."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise error(f"There is no file {path}.") from None
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror or reason}.") from None
    except ValueError:  # a NUL or a lone surrogate
        raise error(f"{str(path)!r} cannot be the name of a file.") from None


def _refuse_others(path: Path, mode: int, error: type[InputError]) -> None:
    if stat.S_ISDIR(mode):
        raise error(f"{path} is a folder, not a file.")
    if not stat.S_ISREG(mode):
        raise error(f"{path} is a pipe or a device, not a regular file: copy its data into a file first.")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
