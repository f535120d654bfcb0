"""Reads files with untrusted names: regular files up to a size, never a pipe or a device."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ercr.errors import InputError

MOST = 2**29  # bytes of a picture's file; uncompressed ones of the largest size allowed are smaller


def read_plain(path: Path, most: int = MOST, error: type[InputError] = InputError) -> bytes:
    """The bytes of a regular file (links are followed); raises `error` for anything else."""
    try:
        _refuse_others(
            path, os.stat(path).st_mode, error
        )  # before it is opened, because opening a pipe waits for a writer
        with open(path, "rb", opener=_without_waiting) as file:
            state = os.fstat(file.fileno())
            _refuse_others(path, state.st_mode, error)
            data = file.read(most + 1) if state.st_size <= most else None
    except InputError:
        raise
    except FileNotFoundError:
        raise error(f"There is no file {path}.") from None
    except OSError as reason:
        raise error(f"{path} cannot be read: {reason.strerror or reason}.") from None
    except ValueError:  # a NUL or a lone surrogate
        raise error(f"{str(path)!r} cannot be the name of a file.") from None
    if data is None or len(data) > most:  # a file can grow, and some system files have no size
        raise error(f"{path} is larger than the {most // 2**20:,} MiB allowed: give a smaller file.")
    return data


def _refuse_others(path: Path, mode: int, error: type[InputError]) -> None:
    if stat.S_ISDIR(mode):
        raise error(f"{path} is a folder, not a file.")
    if not stat.S_ISREG(mode):
        raise error(f"{path} is a pipe or a device, not a regular file: copy its data into a file first.")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
