"""Where many pictures come from: a folder, a glob, a list of files, JSON lines, Parquet, a dataset of `datasets`.

Every source is a sequence of entries; a picture is read when it is explained, so that a broken one is its own row.
"""

from __future__ import annotations

import glob
import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from ercr.datasets.tables import Parquet, Table, open_table
from ercr.errors import InputError, nearest
from ercr.files.plain import read_plain
from ercr.image.addresses import is_address
from ercr.image.clips import Clip, is_video_name

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".heif")
LISTS, LINES, TABLES = (".txt", ".lst", ".list"), (".jsonl", ".ndjson"), (".parquet",)
_IMAGE = ("image", "images", "picture", "photo", "img", "file", "file_name", "filename", "path", "url", "jpg", "png")
_VIDEO = ("video", "videos", "clip")
_PROMPT, _ANSWER, _ID = ("prompt", "question", "instruction"), ("answer", "response", "caption"), ("id", "image_id")
_MOST_BYTES = 2**30  # of a list or of JSON lines


One = str | bytes | Clip


@dataclass(frozen=True)
class Entry:
    """A picture with what is asked about it; None stands for the run's own prompt, and for a generated answer."""

    name: str
    picture: One | tuple[One, ...]  # a file, an address, or a file's bytes; several are explained together
    prompt: str | None = None
    answer: str | None = None


class Source(Sequence[Entry]):
    """Entries by index; `fingerprint` changes with what the source says, but does not read the pictures."""

    fingerprint: str

    @abstractmethod
    def entry(self, index: int) -> Entry:
        """Read one entry."""

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.entry(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"There is no picture {index}: there are {len(self)}.")
        return self.entry(index % len(self))


class Files(Source):
    """Pictures as files, with the names that they have relative to a folder."""

    def __init__(self, files: Sequence[str], root: Path) -> None:
        self.files, self.root = list(files), root
        self.fingerprint = _digest("\n".join(self.files))

    def __len__(self) -> int:
        return len(self.files)

    def entry(self, index: int) -> Entry:
        name = self.files[index]
        return Entry(name, name if is_address(name) else str(self.root / name))


class Lines(Source):
    """One JSON object per line: a picture, and perhaps a prompt, an answer and an id."""

    def __init__(self, path: Path) -> None:
        text = read_plain(path, _MOST_BYTES).decode("utf-8-sig", "replace")
        self.lines = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
        self.path, self.root, self.fingerprint = path, path.parent, _digest(text)
        if self.lines:
            self.entry(0)  # a file of another kind is refused at once

    def __len__(self) -> int:
        return len(self.lines)

    def entry(self, index: int) -> Entry:
        at, line = self.lines[index]
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"Line {at} of {self.path} is not JSON: {error}.") from None
        if not isinstance(row, dict):
            raise InputError(f'Line {at} of {self.path} must be an object such as {{"image": "a.jpg"}}.')
        return _entry(row, _roles(row, f"line {at} of {self.path}"), self.root, f"line {at}")


class Rows(Source):
    """Rows of a Parquet file or of a dataset: pictures as bytes or file names, prompts and answers by usual names."""

    def __init__(self, table: Table, root: Path, where: str) -> None:
        self.table, self.root = table, root
        self.roles = _roles(table.types, where)
        self.fingerprint = _digest(f"{table.fingerprint} {self.roles}")

    def __len__(self) -> int:
        return len(self.table)

    def entry(self, index: int) -> Entry:
        return _entry(self.table.row(index), self.roles, self.root, f"row {index}")


def open_source(where: str) -> Source:
    """The pictures that a folder, a glob, a list, JSON lines, Parquet or a dataset of `datasets` names."""
    path = Path(where).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        return _file(path)
    if glob.has_magic(where):
        found = sorted(name for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
        pictures = [name for name in found if name.lower().endswith(PICTURES) or is_video_name(name)]
        if not pictures:
            raise InputError(f"No picture matches {where!r}: quote the pattern, and check its folder.")
        return Files(pictures, Path())
    raise InputError(f"There is no file or folder {where!r}.")


def is_source(where: str) -> bool:
    """Whether a name stands for many pictures and not for one."""
    path = Path(where).expanduser()
    if is_address(where):
        return False
    if path.is_file():
        return path.suffix.lower() in (*LISTS, *LINES, *TABLES)
    return path.is_dir() or glob.has_magic(where)


def _folder(path: Path) -> Source:
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return Rows(open_table(path, None), path, str(path))
    pictures = sorted(
        str(file.relative_to(path)) for file in path.rglob("*") if file.suffix.lower() in PICTURES and file.is_file()
    )
    pictures = [name for name in pictures if not any(part.startswith(".") for part in Path(name).parts)]
    if pictures:
        return Files(pictures, path)
    if next(path.rglob("*.parquet"), None) is not None:
        return Rows(open_table(path, None), path, str(path))
    raise InputError(f"There are no pictures in {path}: it may hold {', '.join(PICTURES[:4])} and other files.")


def _file(path: Path) -> Source:
    kind = path.suffix.lower()
    if kind in TABLES:
        return Rows(Parquet([path]), path.parent, str(path))
    if kind in LINES:
        return Lines(path)
    if kind in LISTS:
        lines = read_plain(path, _MOST_BYTES).decode("utf-8-sig", "replace").splitlines()
        names = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        return Files(names, path.parent)
    if kind in PICTURES:
        return Files([path.name], path.parent)
    raise InputError(f"{path} is no list of pictures: use {', '.join((*LISTS, *LINES, *TABLES))}, or a picture.")


def _roles(columns: Mapping[str, Any], where: str) -> dict[str, str | None]:
    """The column for the picture, the prompt, the answer and the id."""
    usual = {name.lower(): name for name in columns}
    chosen = {
        role: next((usual[name] for name in names if name in usual), None)
        for role, names in (
            *(("image", _IMAGE), ("video", _VIDEO)),
            *(("prompt", _PROMPT), ("answer", _ANSWER), ("id", _ID)),
        )
    }
    if chosen["image"] is None and chosen["video"] is None:
        raise InputError(
            f"There is no picture in {where}: name it 'image'; there are {', '.join(columns)}."
            f"{nearest('image', list(columns))}"
        )
    return chosen


def _entry(row: Mapping[str, Any], roles: Mapping[str, str | None], root: Path, place: str) -> Entry:
    def text(role: str) -> str | None:
        value = row.get(roles[role] or "")
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if role != "id" and not isinstance(value, str):
            raise InputError(f"The {role} of {place} must be text, not {type(value).__name__}.")
        return str(value)

    images = _listed(row.get(roles["image"] or ""))
    found: list[tuple[One, Any]] = [(_one(value, root, place), value) for value in images]
    videos = [(_one(value, root, place), value) for value in _listed(row.get(roles["video"] or ""))]
    found += [(Clip(source), value) for source, value in videos]
    if not found:
        raise InputError(f"There is no picture in {place}.")
    names = [value.get("path") if isinstance(value, Mapping) else value for _, value in found]
    own = ", ".join(name for name in names if isinstance(name, str) and name) or place
    pictures = tuple(picture for picture, _ in found)
    return Entry(text("id") or own, pictures[0] if len(pictures) == 1 else pictures, text("prompt"), text("answer"))


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _one(value: Any, root: Path, place: str) -> str | bytes:
    """A file's bytes, an address, or a file beside the list."""
    data, name = (value.get("bytes"), value.get("path")) if isinstance(value, Mapping) else (value, value)
    if isinstance(data, bytes):
        return data
    if isinstance(name, str) and name:
        return name if is_address(name) else str(root / name)
    raise InputError(f"There is no picture in {place}.")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
