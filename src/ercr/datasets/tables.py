"""Tables of the library `datasets`: saved by `save_to_disk`, or as Parquet files. Rows come as they are stored.

Pictures stay bytes or file names here: the caller decides which files may be opened.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from ercr.datasets.options import choose_split
from ercr.errors import InputError, missing

_SPLITS = ("train", "validation", "valid", "val", "dev", "test")
_SHARD = re.compile(r"(.+?)-\d{5}-of-\d{5}")


class Table(Protocol):
    """Rows by index, the Arrow types of the columns, and the metadata of `datasets`."""

    types: dict[str, Any]  # column: Arrow type
    features: dict[str, Any]  # column: feature as stored by `datasets`; empty for other files
    fingerprint: str

    def __len__(self) -> int: ...

    def row(self, index: int) -> dict[str, Any]: ...


def open_table(folder: Path, split: str | None) -> Table:
    """The table in a folder; a folder with several splits needs the name of one."""
    if (folder / "dataset_dict.json").is_file():
        found = sorted(path.parent.name for path in folder.glob("*/state.json"))
        if not found:
            raise InputError(f"{folder} has none of the splits that its dataset_dict.json should name.")
        return Saved(folder / choose_split(found, split, f"hf:{folder}"))
    if (folder / "state.json").is_file():
        return Saved(folder)
    files: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(folder.rglob("*.parquet")):
        files[_split(file)].append(file)
    if not files:
        raise InputError(f"{folder} holds neither what save_to_disk of `datasets` writes nor Parquet files.")
    return Parquet(files[choose_split(sorted(files), split, f"hf:{folder}")])


def _split(file: Path) -> str:
    """The split in a file's name, by the rules of the hub; `train` if the name has none."""
    shard = _SHARD.match(file.name)
    if shard is not None:
        return shard[1]
    return next((name for name in (file.stem, file.parent.name) if name in _SPLITS), "train")


class Saved:
    """A folder that `save_to_disk` wrote."""

    def __init__(self, folder: Path) -> None:
        try:
            import datasets
        except ImportError:
            raise missing("Datasets from save_to_disk need the package datasets", "hf") from None
        try:
            self._rows = datasets.load_from_disk(str(folder)).with_format("arrow")
            schema = self._rows.features.arrow_schema
            self.features: dict[str, Any] = self._rows.features.to_dict()
        except Exception as error:  # damaged files fail in many ways
            raise InputError(f"{folder} cannot be read as what save_to_disk wrote: {error!r:.200}.") from None
        self.types = {field.name: field.type for field in schema}
        self.fingerprint = str(self._rows._fingerprint)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> dict[str, Any]:
        return dict(self._rows[index].to_pylist()[0])


class Parquet:
    """The Parquet files of one split; rows are read in row groups."""

    types: dict[str, Any]
    features: dict[str, Any]

    def __init__(self, files: list[Path]) -> None:
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise missing("Parquet files need pyarrow", "evaluate") from None
        self._groups: list[tuple[Any, int, int]] = []  # file, number of the group, first row
        seen, count = hashlib.sha256(), 0
        for path in files:
            try:
                file = parquet.ParquetFile(path, memory_map=True)
            except Exception as error:
                raise InputError(f"{path} cannot be read as Parquet: {error!r:.200}.") from None
            schema = file.schema_arrow
            types = {field.name: field.type for field in schema}
            if self._groups and types != self.types:
                raise InputError(f"{path} has other columns than {files[0]}: they are not one dataset.")
            self.types, self.features = types, _features(schema)
            for number in range(file.num_row_groups):
                self._groups.append((file, number, count))
                count += file.metadata.row_group(number).num_rows
            seen.update(f"{path.name} {path.stat().st_size} {file.metadata.to_dict()}\n".encode())
        self._count, self.fingerprint = count, seen.hexdigest()
        self._group = lru_cache(2)(self._read)

    def __len__(self) -> int:
        return self._count

    def row(self, index: int) -> dict[str, Any]:
        at = max(at for at, (_, _, first) in enumerate(self._groups) if first <= index)
        row: dict[str, Any] = self._group(at).slice(index - self._groups[at][2], 1).to_pylist()[0]
        return row

    def _read(self, at: int) -> Any:
        file, number, _ = self._groups[at]
        return file.read_row_group(number)


def _features(schema: Any) -> dict[str, Any]:
    """The features that `datasets` stored in a file's schema; empty for other files."""
    try:
        noted = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return noted if isinstance(noted, dict) else {}
