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

from ercr.web.limits import Limits

_RESULTS, _EXAMPLES = "results", "examples"
_EVERY = 60.0  # seconds between two sweeps


class Folder:
    """A temporary folder, swept by a thread of its own while it is entered."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.path = Path(tempfile.mkdtemp(prefix="ercr-serve-")).resolve()
        self.examples = self.path / _EXAMPLES
        self.examples.mkdir()
        (self.path / _RESULTS).mkdir()
        self.listed: Iterable[set[str]] = ()  # sets of paths that others keep; what is swept leaves them, too
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
        real = os.path.realpath(path)
        return real.startswith(f"{self.path}{os.sep}") and os.path.isfile(real)

    def sweep(self) -> None:
        """Remove what is too old and, beyond the size allowed, what is oldest; then empty folders."""
        files = sorted(self._files(), key=lambda entry: entry[1])
        total = sum(size for _, _, size in files)
        oldest = time.time() - 60 * self._limits.keep_minutes
        for path, changed, size in files:
            if changed >= oldest and total <= self._limits.stored_mb * 1_000_000:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
        self._remove_empty(oldest)
        for paths in self.listed:
            # a copy first: requests add to these sets while we look
            paths.difference_update([path for path in tuple(paths) if not os.path.exists(path)])

    def _files(self) -> list[tuple[Path, float, int]]:
        found = []
        for path in self.path.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and self.examples not in path.parents:
                    status = path.stat()
                    found.append((path, status.st_mtime, status.st_size))
        return found

    def _remove_empty(self, before: float) -> None:
        for place in sorted(self.path.rglob("*"), reverse=True):
            with contextlib.suppress(OSError):
                if place.is_dir() and place.name not in (_RESULTS, _EXAMPLES) and place.stat().st_mtime < before:
                    place.rmdir()  # refuses folders that hold something

    def _sweep_often(self) -> None:
        while not self._closing.wait(_EVERY):
            self.sweep()
