"""A run's folder: settings, parts, all rows, a log. Whatever is in it is whole, whenever a process was killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from ercr.errors import FileFormatError, InputError, OutputError
from ercr.evaluate.plan import differences
from ercr.evaluate.schema import SCHEMA
from ercr.files.writing import replacing

_LOCK = ".lock"
_OWN = {_LOCK, "parts", "settings.json", "rows.parquet", "log.jsonl"}


class Run:
    """The folder of an evaluation, finished or not."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Run:
        """A run that exists; it need not be finished."""
        run = cls(path)
        if not (run.path / "settings.json").is_file():
            raise FileFormatError(f"{run.path} is not the folder of an evaluation: it has no settings.json.")
        return run

    # reading it

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that determined the rows."""
        path = self.path / "settings.json"
        try:
            settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{path} cannot be read: {error}.") from None
        return settings

    @property
    def threads(self) -> int | None:
        """How many threads the run was begun with; None before it is begun, and on GPUs."""
        begun = (self.path / "settings.json").is_file()
        threads: int | None = self.settings.get("threads") if begun else None
        return threads

    @property
    def complete(self) -> bool:
        return (self.path / "rows.parquet").is_file()

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows; of an unfinished run, those that are there."""
        wanted = list(SCHEMA.names if columns is None else columns)
        if self.complete:
            return pq.read_table(self.path / "rows.parquet", columns=wanted)
        found = sorted((self.path / "parts").glob("part-*.parquet"))
        empty = SCHEMA.empty_table().select(wanted)
        return pa.concat_tables([empty, *(pq.read_table(path, columns=wanted) for path in found)])

    def figures(self) -> dict[str, dict[str, Any]]:
        """Obj-IoU, Func-IoU and the rest of every method, pooled over the run."""
        from ercr.evaluate.figures import COLUMNS, figures

        return figures(self.table(COLUMNS), self.settings["budgets"])

    def log(self) -> list[dict[str, Any]]:
        """What each part took; a line that a kill cut short is left out."""
        path, entries = self.path / "log.jsonl", []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue
        return entries

    # writing it

    @contextmanager
    def locked(self) -> Iterator[Run]:
        """Make the folder, or go on in it; no other process may write it meanwhile."""
        self._make()
        lock = FileLock(self.path / _LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise OutputError(f"Another process is writing {self.path}: wait for it, or give another folder.") from None
        with lock:
            self._clean()
            yield self

    def _make(self) -> None:
        try:
            foreign = [name for name in os.listdir(self.path) if name not in _OWN and not name.startswith(".")]
        except FileNotFoundError:
            foreign = []
        except OSError as error:
            raise OutputError(f"{self.path} cannot be used: {error.strerror or error}.") from None
        if foreign and not (self.path / "settings.json").exists():
            raise OutputError(f"{self.path} holds other files ({foreign[0]}): give a new folder for the run.")
        try:
            (self.path / "parts").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"The folder {self.path} cannot be made: {error.strerror or error}.") from None

    def _clean(self) -> None:
        """Remove what a killed process had begun to write; the log's last line may be cut short."""
        log = self.path / "log.jsonl"
        if log.exists() and not log.read_bytes().endswith(b"\n"):
            with log.open("a") as file:
                file.write("\n")
        for folder in (self.path, self.path / "parts"):
            for path in folder.glob(".*.*"):
                if path.name != _LOCK:
                    path.unlink(missing_ok=True)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse to mix rows of different settings."""
        if not (self.path / "settings.json").exists():
            return
        changed = differences(self.settings, settings)
        if changed:
            more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
            raise InputError(
                f"{self.path} was made with other settings: {'; '.join(changed[:3])}{more}. Give another folder."
            )

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Write the settings if this run has none yet, else check them; safe among several workers."""
        own = self.path / f".settings.json.{os.getpid()}.{os.urandom(4).hex()}"
        target = self.path / "settings.json"
        with replacing(own) as file:
            file.write((json.dumps(settings, indent=1, ensure_ascii=False) + "\n").encode())
        try:
            os.link(own, target)
        except FileExistsError:
            self.check(settings)
        except OSError:  # a file system without links
            os.replace(own, target)
        finally:
            own.unlink(missing_ok=True)

    def part_path(self, number: int) -> Path:
        return self.path / "parts" / f"part-{number:06d}.parquet"

    def has(self, number: int) -> bool:
        """Whether a part is there and whole."""
        try:
            return bool(pq.read_schema(self.part_path(number)).equals(SCHEMA))
        except (OSError, pa.ArrowException):
            return False

    def forget_failures(self) -> None:
        """Remove the parts in which a sample failed, so that they are computed again."""
        for path in (self.path / "parts").glob("part-*.parquet"):
            if "failed" in pq.read_table(path, columns=["status"])["status"].to_pylist():
                path.unlink()

    def write_part(self, number: int, rows: Sequence[Mapping[str, Any]]) -> None:
        with replacing(self.part_path(number)) as file:
            pq.write_table(as_table(rows), file, compression="zstd")

    def note(self, entry: Mapping[str, Any]) -> None:
        """One more line in the log."""
        with (self.path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def finish(self, parts: int) -> None:
        """All parts in their order as one file."""
        with replacing(self.path / "rows.parquet") as file, pq.ParquetWriter(file, SCHEMA, compression="zstd") as rows:
            for number in range(parts):
                rows.write_table(pq.read_table(self.part_path(number)))


def as_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows with the columns of a run; a column that a row lacks is null."""
    columns = {}
    for field in SCHEMA:
        values = [row.get(field.name) for row in rows]
        if field.type == pa.string():
            # a lone surrogate, which JSON can smuggle in, cannot be stored
            values = [None if v is None else v.encode("utf-8", "replace").decode() for v in values]
        columns[field.name] = pa.array(values, field.type)
    return pa.table(columns, schema=SCHEMA)
