"""The one folder that uploads and results live in: private, bounded in age and size, gone with the server."""

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
_EVERY = 60.0  # seconds between two sweeps
_YOUNG = 60.0  # seconds in which a file is not given up for a new one: a visitor is at work with it
_BLOCK = 4096
_STEP = 64 * 1024  # bytes by which a promise grows


class Full(InputError):
    """There is no room for another upload or result."""


class Promise:
    """Room in the folder for what is being written; leaving it counts `kept`, what is there then."""

    def __init__(self, folder: Folder, size: int) -> None:
        self._folder = folder
        self._size = size
        self.kept = 0

    def grow_to(self, size: int) -> None:
        """Hold at least so many bytes."""
        if size > self._size:
            more = size - self._size + _STEP
            self._folder.extend(more)
            self._size += more

    def __enter__(self) -> Promise:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.settle(self._size, self.kept)


def blocks_for(size: int) -> int:
    """Bytes that a file of this size and its folder take from a disk."""
    return -(-size // _BLOCK) * _BLOCK + _BLOCK


def disk_use(place: Path) -> int:
    """Bytes that the files in a folder take from the disk."""
    return sum(_on_disk(path.stat()) for path in place.iterdir())


def _on_disk(status: os.stat_result) -> int:
    """A file's blocks and those of its folder; systems that do not count blocks tell the length."""
    return max(blocks_for(status.st_size), getattr(status, "st_blocks", 0) * 512 + _BLOCK)


class Folder:
    """A temporary folder, swept by a thread of its own while it is entered."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.path = Path(tempfile.mkdtemp(prefix="ercr-serve-")).resolve()
        self.examples = self.path / _EXAMPLES
        self.examples.mkdir()
        (self.path / _RESULTS).mkdir()
        self.listed: Iterable[set[str]] = ()  # sets of paths that others keep; what is swept leaves them, too
        self._lock = threading.Lock()
        self._used = 0  # bytes on disk, as far as was counted
        self._promised = 0
        self._full_until = 0.0
        self._closing = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep_often, name="ercr-sweep", daemon=True)

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
        """An empty folder for one answer's files, under a name that cannot be guessed."""
        place = self.path / _RESULTS / secrets.token_hex(16)
        place.mkdir()
        return place

    def result(self, key: str, name: str) -> Path | None:
        """A file of a result, if it is still here."""
        if not (key.isalnum() and name and "/" not in name and not name.startswith(".")):
            return None
        path = self.path / _RESULTS / key / name
        return path if path.is_file() else None

    def holds(self, path: object) -> bool:
        """Whether a path that a client sent is a file in here."""
        if not isinstance(path, str) or "\0" in path or len(path) > 4096:
            return False
        try:
            real = os.path.realpath(path)
            return real.startswith(f"{self.path}{os.sep}") and os.path.isfile(real)
        except (OSError, ValueError):  # half a surrogate pair is no name of a file
            return False

    def promise(self, size: int, likely: int = 0) -> Promise:
        """So many bytes, where there is room for them and for all that is likely to come; raises where there is none.

        What is oldest is removed to make room.
        """
        self.extend(size, likely)
        return Promise(self, size)

    def extend(self, size: int, likely: int = 0) -> None:
        """Count more as promised."""
        with self._lock:
            room = int(self._limits.stored_mb * 1_000_000) - self._promised - max(size, likely)
            if self._used > room and time.monotonic() >= self._full_until:
                self._used = self._shrink(room)
                # counting anew costs: while all is young, that is not done for every request
                self._full_until = time.monotonic() + 1.0 if self._used > room else 0.0
            if self._used > room:
                raise Full("The server's room for uploads and results is taken: try again in a minute.")
            self._promised += size

    def settle(self, promised: int, kept: int) -> None:
        """Count what is there now in place of what was promised."""
        with self._lock:
            self._promised -= promised
            self._used += kept

    def sweep(self) -> None:
        """Remove what is too old and, beyond the size allowed, what is oldest; then empty folders."""
        with self._lock:
            self._used = self._shrink(int(self._limits.stored_mb * 1_000_000) - self._promised)
        self._remove_empty(time.time() - 60 * self._limits.keep_minutes)
        for paths in self.listed:
            # a copy first: requests add to these sets while we look
            paths.difference_update([path for path in tuple(paths) if not os.path.exists(path)])

    def _shrink(self, room: int) -> int:
        """Remove old files, and then the oldest until the others fit; the bytes that are left."""
        files = sorted(self._files(), key=lambda entry: entry[1])
        total, now = sum(size for _, _, size in files), time.time()
        for path, changed, size in files:
            age = now - changed
            if age <= 60 * self._limits.keep_minutes and (total <= room or age < _YOUNG):
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

    def _sweep_often(self) -> None:
        while not self._closing.wait(_EVERY):
            self.sweep()
