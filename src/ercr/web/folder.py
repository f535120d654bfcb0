"""The temporary folder of uploads and results: private, limited in age and size, removed when the server stops."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from ercr.errors import InputError
from ercr.web.limits import Limits

_RESULTS, _EXAMPLES = "results", "examples"
_SWEEP_INTERVAL = 60.0  # seconds
_MIN_AGE = 60.0  # seconds before a file may be removed to make room: until then its visitor may need it
_BLOCK = 4096
_STEP = 64 * 1024  # bytes by which a reservation grows


class NoSpace(InputError):
    """The folder has no room for another upload or result."""


class Reservation:
    """Reserved bytes for files that are being written; on exit the bytes in `kept` are counted instead."""

    def __init__(self, folder: Folder, size: int) -> None:
        self._folder = folder
        self._size = size
        self.kept = 0

    def grow_to(self, size: int) -> None:
        """Reserve at least this many bytes."""
        if size > self._size:
            more = size - self._size + _STEP
            self._folder.extend(more)
            self._size += more

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.release(self._size, self.kept)


def blocks_for(size: int) -> int:
    """Bytes on disk for a file of this size and its folder."""
    return -(-size // _BLOCK) * _BLOCK + _BLOCK


def disk_use(place: Path) -> int:
    """Bytes on disk of the files in a folder."""
    return sum(_on_disk(path.stat()) for path in place.iterdir())


def _on_disk(status: os.stat_result) -> int:
    """A file's blocks and those of its folder; the length, where the system does not count blocks."""
    return max(blocks_for(status.st_size), getattr(status, "st_blocks", 0) * 512 + _BLOCK)


class Folder:
    """A temporary folder; while it is entered, a thread removes old files."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.path = Path(tempfile.mkdtemp(prefix="ercr-serve-")).resolve()
        self.examples = self.path / _EXAMPLES
        self.examples.mkdir()
        (self.path / _RESULTS).mkdir()
        self.path_sets: Iterable[set[str]] = ()  # sets of paths that the framework keeps; removed files leave them, too
        self._lock = threading.Lock()
        self._used = 0  # bytes on disk at the last count
        self._reserved = 0
        self._recount_after = 0.0
        self._closing = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep_regularly, name="ercr-sweep", daemon=True)

    def __enter__(self) -> Folder:
        self._sweeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._sweeper.join()
        shutil.rmtree(self.path, ignore_errors=True)

    def new_result(self) -> Path:
        """A new folder for the files of one answer, with a random name."""
        target = self.path / _RESULTS / secrets.token_hex(16)
        target.mkdir()
        return target

    def result(self, key: str, name: str) -> Path | None:
        """A file of a result, or None if it no longer exists."""
        if not (key.isalnum() and name and "/" not in name and not name.startswith(".")):
            return None
        path = self.path / _RESULTS / key / name
        return path if path.is_file() else None

    def contains(self, path: object) -> bool:
        """Whether a path that a client sent is a file in this folder."""
        if not isinstance(path, str) or "\0" in path or len(path) > 4096:
            return False
        try:
            real = os.path.realpath(path)
            return real.startswith(f"{self.path}{os.sep}") and os.path.isfile(real)
        except (OSError, ValueError):  # a lone surrogate cannot be part of a file name
            return False

    def reserve(self, size: int, likely: int = 0) -> Reservation:
        """Reserve bytes if there is room for the larger of `size` and `likely`; otherwise raise `NoSpace`.

        The oldest files are removed to make room.
        """
        self.extend(size, likely)
        return Reservation(self, size)

    def extend(self, size: int, likely: int = 0) -> None:
        """Reserve more bytes."""
        with self._lock:
            room = int(self._limits.stored_mb * 1_000_000) - self._reserved - max(size, likely)
            if self._used > room and time.monotonic() >= self._recount_after:
                self._used = self._shrink(room)
                # counting is slow: while all files are too young to remove, it is not repeated for every request
                self._recount_after = time.monotonic() + 1.0 if self._used > room else 0.0
            if self._used > room:
                raise NoSpace("The server has no room for more uploads and results: try again in a minute.")
            self._reserved += size

    def release(self, reserved: int, kept: int) -> None:
        """Replace a reservation by the bytes that were written."""
        with self._lock:
            self._reserved -= reserved
            self._used += kept

    def sweep(self) -> None:
        """Remove files that are too old and, above the size limit, the oldest ones; then empty folders."""
        with self._lock:
            self._used = self._shrink(int(self._limits.stored_mb * 1_000_000) - self._reserved)
        self._remove_empty(time.time() - 60 * self._limits.keep_minutes)
        for paths in self.path_sets:
            # a copy, because requests add to these sets meanwhile
            paths.difference_update([path for path in tuple(paths) if not os.path.exists(path)])

    def _shrink(self, room: int) -> int:
        """Remove old files, then the oldest until the rest fits; returns the bytes that are left."""
        files = sorted(self._files(), key=lambda entry: entry[1])
        total, now = sum(size for _, _, size in files), time.time()
        for path, changed, size in files:
            age = now - changed
            if age <= 60 * self._limits.keep_minutes and (total <= room or age < _MIN_AGE):
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size
                if path.parent != self.path:
                    path.parent.rmdir()  # refuses a folder that holds more
        return total

    def _files(self) -> list[tuple[Path, float, int]]:
        found = []
        for path in self.path.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and self.examples not in path.parents:
                    status = path.stat()
                    found.append((path, status.st_mtime, _on_disk(status)))
        return found

    def _remove_empty(self, before: float) -> None:
        for place in sorted(self.path.rglob("*"), reverse=True):
            with contextlib.suppress(OSError):
                if place.is_dir() and place.name not in (_RESULTS, _EXAMPLES) and place.stat().st_mtime < before:
                    place.rmdir()  # refuses folders that hold something

    def _sweep_regularly(self) -> None:
        while not self._closing.wait(_SWEEP_INTERVAL):
            self.sweep()
