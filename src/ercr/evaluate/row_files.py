"""Parquet files of rows, each with a JSON record beside it that names its run and part and holds its checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ercr.errors import FileFormatError
from ercr.evaluate.schema import SCHEMA
from ercr.evaluate.settings import read_json
from ercr.files.writing import replacing

_CHECKSUM = "sha256"


def write_tables(path: Path, tables: Iterable[pa.Table], about: Mapping[str, Any], schema: pa.Schema = SCHEMA) -> None:
    """Write tables as one Parquet file, and `about` with its checksum as the record beside it.

    The record is renamed into place first: rows without a matching record never count as complete.
    """
    with replacing(path) as file:
        hashed = _Hashed(file)
        with pq.ParquetWriter(hashed, schema, compression="zstd") as rows:
            for table in tables:
                rows.write_table(table)
        with replacing(record_path(path)) as record:
            record.write((json.dumps({**about, _CHECKSUM: hashed.checksum()}) + "\n").encode())


def checksum(path: Path, about: Mapping[str, Any]) -> str | None:
    """The checksum of a file of rows if it is undamaged and its record agrees with `about`; else None."""
    try:
        record = read_json(record_path(path))
        if any(record.get(key) != value for key, value in about.items()) or not path.is_file():
            return None
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (FileFormatError, OSError):
        return None
    return found if found == record.get(_CHECKSUM) else None


def record_path(path: Path) -> Path:
    return path.with_suffix(".json")


def as_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows with the columns of a run; a column that a row lacks is null."""
    columns = {}
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if field.type == pa.string():
            # a lone surrogate, which JSON allows, cannot be stored
            values = [None if v is None else v.encode("utf-8", "replace").decode() for v in values]
        columns[field.name] = pa.array(values, field.type)
    return pa.table(columns, schema=schema)


class _Hashed:
    """A file that is written from start to end; computes the checksum of what is written."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._found = file, hashlib.sha256()

    def write(self, data: Any) -> int:
        self._found.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Does nothing: the code that opened the file closes it."""

    def checksum(self) -> str:
        return self._found.hexdigest()
