"""A run's folder: settings, parts, all rows, a log. Every file in it is complete, even if a process was killed.

Files are read only if their checksum is right, and files that the run did not write itself are never changed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from ercr.errors import FileFormatError, InputError, OutputError
from ercr.evaluate.row_files import as_table, checksum, record_path, write_tables
from ercr.evaluate.schema import schema_of
from ercr.evaluate.settings import FORMAT, as_bytes, differences, read_settings, with_checksum
from ercr.files.folders import check_no_others, entries
from ercr.files.writing import unfinished_name, write_new

_LOCK, _PARTS, _SETTINGS, _ROWS, _LOG = ".lock", "parts", "settings.json", "rows.parquet", "log.jsonl"
_FILES = {_LOCK, _SETTINGS, _ROWS, "rows.json", _LOG}
_BEFORE = {_LOCK, _PARTS, _SETTINGS}  # all that a run can have written before it has settings
_PART = re.compile(r"part-(\d{6,})\.(parquet|json)")


class Run:
    """The folder of an evaluation, finished or not."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        command: str = "ercr evaluate",
        beside: Sequence[str] = (),
    ) -> None:
        """`schema` has the columns of its rows, if they are not those of an evaluation's task; `command` writes it.

        `beside` are patterns of other names that it writes.
        """
        self.path, self._schema, self.command = Path(path), schema, command
        self._beside = re.compile("|".join(beside) or "(?!)")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """A run that exists; it need not be finished."""
        run = cls(path)
        if not run.begun:
            raise FileFormatError(f"{run.path} is not the folder of an evaluation: it has no settings.json.")
        return run

    # reading it

    @property
    def begun(self) -> bool:
        return (self.path / _SETTINGS).exists()

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determined the rows."""
        return read_settings(self.path / _SETTINGS)

    @property
    def task(self) -> str:
        """What was evaluated: `maps`, or `grounding`."""
        return str(self.settings.get("task", "maps")) if self.begun else "maps"

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return schema_of(self.task) if self._schema is None else self._schema

    @property
    def threads(self) -> int | None:
        """How many threads the run was started with; None before it has started, and on GPUs."""
        threads: int | None = self.settings.get("threads") if self.begun else None
        return threads

    @property
    def complete(self) -> bool:
        return (self.path / _ROWS).is_file()

    @property
    def checked(self) -> bool:
        """Whether its files carry checksums; those of earlier versions do not."""
        return bool(self.settings["format"] != 1)

    def sources(self) -> list[Path]:
        """The files that hold the rows: one for a finished run, else the parts so far; refuses damaged ones."""
        rows = self.path / _ROWS
        found = [rows] if self.complete else self._parts()
        run = self._id() if self.checked else None
        for path in found:
            about = {"run": run, "part": None if path == rows else _number(path)}  # one part is not all rows
            if run is not None and checksum(path, about) is None:
                raise FileFormatError(f"{path} is damaged: run the same `{self.command}` again, which repairs it.")
        return found

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows; of an unfinished run, the rows so far."""
        wanted = list(self.schema.names if columns is None else columns)
        found = []
        for path in self.sources():
            with pq.ParquetFile(path) as file:  # runs of earlier versions lack some columns
                found.append(file.read([name for name in wanted if name in file.schema_arrow.names]))
        return pa.concat_tables([self.schema.empty_table().select(wanted), *found], promote_options="default")

    def scores(self) -> dict[str, dict[str, Any]]:
        """Obj-IoU, Func-IoU and the other scores of every method, pooled over the run.

        Of the task `grounding`: how well `seen` and every signal tell what is there, by kind of word.
        """
        if self.task == "grounding":
            from ercr.evaluate.grounding_scores import scores as told_apart

            return told_apart(self.table())
        from ercr.evaluate.scores import COLUMNS, scores

        return scores(self.table(COLUMNS), self.settings["budgets"])

    figures = scores  # the name in version 0.1.0

    def log(self) -> list[dict[str, Any]]:
        """Time and failures of each part; an incomplete line (the process was killed) is left out."""
        path, found = self.path / _LOG, []
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
        return found

    def part_path(self, number: int) -> Path:
        return self.path / _PARTS / f"part-{number:06d}.parquet"

    def _parts(self) -> list[Path]:
        names = [name for name in entries(self.path / _PARTS) if _PART.fullmatch(name) and name.endswith(".parquet")]
        return sorted((self.path / _PARTS / name for name in names), key=_number)

    def _id(self) -> str:
        """The identifier that the files of this run carry."""
        return str(self.settings["checksum"])

    # writing it

    @contextmanager
    def locked(self) -> Iterator[Run]:
        """Create the folder or continue in it, under a lock: no other process may write it at the same time."""
        self._check_contents()
        if self.begun:
            _ = self.settings
        try:
            (self.path / _PARTS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"The folder {self.path} cannot be created: {error.strerror or error}.") from None
        lock = FileLock(self.path / _LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise OutputError(f"Another process is writing {self.path}: wait for it, or name another folder.") from None
        with lock:
            yield self

    def _check_contents(self) -> None:
        """Refuse a folder with files that no run has written; nothing is created or changed before this check."""
        known = _FILES | {_PARTS} if self.begun else _BEFORE
        others = [name for name in entries(self.path) if _own(name) not in known]
        if self.begun:
            others = [name for name in others if not self._beside.fullmatch(_own(name))]
        check_no_others(self.path, others)
        parts = entries(self.path / _PARTS) if (self.path / _PARTS).exists() else []
        mine = _PART if self.begun else re.compile("")
        check_no_others(self.path / _PARTS, [name for name in parts if not mine.fullmatch(_own(name))])
        for name in sorted(_FILES):
            path = self.path / name
            if os.path.lexists(path) and not path.is_file():
                raise OutputError(f"{path} is not a regular file: name a new folder.")
        lock = self.path / _LOCK
        if lock.is_symlink() or (
            lock.exists() and lock.stat().st_size
        ):  # a lock of ours is empty, and locking empties the file
            raise OutputError(f"{lock} is not the lock of a run: name a new folder.")

    def tidy(self) -> None:
        """Remove what a killed process left unfinished; call it when the run is locked and checked."""
        log = self.path / _LOG
        if log.exists() and not log.read_bytes().endswith(b"\n"):
            self._append("\n")
        for folder in (self.path, self.path / _PARTS):
            for name in os.listdir(folder):
                of = unfinished_name(name)
                if of is not None and (of in _FILES if folder == self.path else _PART.fullmatch(of)):
                    (folder / name).unlink(missing_ok=True)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse to mix rows of different settings."""
        if not self.begun:
            return
        before = self.settings
        if before["format"] < FORMAT:
            raise InputError(f"{self.path} was written by an earlier version, without checksums: name another folder.")
        changed = differences(before, settings)
        if changed:
            more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
            raise InputError(
                f"{self.path} was written with other settings: {'; '.join(changed[:3])}{more}. Name another folder."
            )

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Write the settings if this run has none yet, else check them; safe among several workers."""
        if not write_new(self.path / _SETTINGS, as_bytes(with_checksum(settings))):
            self.check(settings)

    def whole_parts(self, parts: Sequence[range]) -> dict[int, str]:
        """Checksums by number of the parts that are complete, undamaged and of this run."""
        if not self.begun:
            return {}
        run = self._id()
        found = {
            number: checksum(self.part_path(number), _about(run, number, samples))
            for number, samples in enumerate(parts)
        }
        return {number: digest for number, digest in found.items() if digest is not None}

    def forget_failures(self, numbers: Sequence[int]) -> list[int]:
        """Remove the parts in which a sample failed, so that they are computed again; returns the numbers kept."""
        kept = []
        for number in numbers:
            path = self.part_path(number)
            if "failed" not in pq.read_table(path, columns=["status"])["status"].to_pylist():
                kept.append(number)
                continue
            for file in (path, record_path(path)):
                file.unlink()
        return kept

    def write_part(self, number: int, samples: range, rows: Sequence[Mapping[str, Any]]) -> None:
        table = as_table(rows, self.schema)
        write_tables(self.part_path(number), [table], _about(self._id(), number, samples), self.schema)

    def note(self, entry: Mapping[str, Any]) -> None:
        """One more line in the log."""
        self._append(json.dumps(entry) + "\n")

    def _append(self, text: str) -> None:
        with (self.path / _LOG).open("a", encoding="utf-8") as file:
            file.write(text)

    def finish(self, parts: Sequence[range]) -> bool:
        """Write all parts in their order as one file; False if that file exists already and matches the parts."""
        whole = self.whole_parts(parts)
        lost = [number for number in range(len(parts)) if number not in whole]
        if lost:
            raise FileFormatError(f"{self.part_path(lost[0])} is damaged: run the same `{self.command}` again.")
        about = {"run": self._id(), "parts": [whole[number] for number in range(len(parts))]}
        rows = self.path / _ROWS
        if checksum(rows, about) is None:
            tables = (pq.read_table(self.part_path(number)) for number in range(len(parts)))
            write_tables(rows, tables, about, self.schema)
            return True
        return False


def _about(run: str, number: int, samples: range) -> dict[str, Any]:
    return {"run": run, "part": number, "samples": [samples.start, samples.stop]}


def _number(part: Path) -> int:
    found = _PART.fullmatch(part.name)
    return int(found[1]) if found else -1


def _own(name: str) -> str:
    """A file's name; of an unfinished temporary file, the name that it would have got."""
    return unfinished_name(name) or name
