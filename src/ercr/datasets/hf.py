"""Datasets saved by the Hugging Face library `datasets`, or stored as Parquet files in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.datasets.columns import BOXES, CATEGORY, OUTLINE, ROLES, choose_columns
from ercr.datasets.folder import category_id, decode_labels, inside
from ercr.datasets.instances import box, draw, outline
from ercr.datasets.options import split_options
from ercr.datasets.registry import register
from ercr.datasets.sample import PROMPT, Sample, Samples
from ercr.datasets.tables import open_table
from ercr.errors import InputError, choose
from ercr.files.plain import read_plain
from ercr.image.images import load_image

_MOST = 255  # categories of a label picture


class Rows(Samples):
    """One sample per row."""

    def __init__(self, root: Path, split: str | None, columns: Mapping[str, str], boxes: str) -> None:
        self.root, self.boxes = root, boxes
        self.table = open_table(root, split)
        self.columns = choose_columns(self.table.types, self.table.features, columns)
        self.names = _class_names(self.table.features.get(self.columns.objects or ""))

    def __len__(self) -> int:
        return len(self.table)

    def name(self, index: int) -> str:
        return f"row {index}"

    def fingerprint(self, count: int) -> str:
        facts = (self.table.fingerprint, self.columns, self.boxes)
        return hashlib.sha256(repr(facts).encode("utf-8", "replace")).hexdigest()

    def sample(self, index: int) -> Sample:
        row, columns = self.table.row(index), self.columns
        image = load_image(self._bytes(row[columns.image], index)).rgb
        size = (image.height, image.width)
        try:
            labels, categories = self._labels(row, size)
        except InputError:
            raise
        except Exception as error:  # pycocotools raises many types of errors
            raise InputError(f"The objects or masks of row {index} cannot be used: {error!r:.200}.") from None
        prompt = row[columns.prompt] if columns.prompt else None
        return Sample(
            id=str(row[columns.id]) if columns.id and row[columns.id] is not None else self.name(index),
            image=image,
            prompt=prompt if prompt else PROMPT,
            labels=labels,
            categories=categories,
            references=_texts(row[columns.captions]) if columns.captions else (),
        )

    def _bytes(self, value: Any, index: int) -> bytes:
        """The bytes of a picture, from the table or from a file in the folder."""
        data, path = (value.get("bytes"), value.get("path")) if isinstance(value, Mapping) else (value, value)
        if isinstance(data, bytes):
            return data
        if not isinstance(path, str):
            raise InputError(f"Row {index} has no picture.")
        return read_plain(inside(self.root, path))

    def _labels(self, row: dict[str, Any], size: tuple[int, int]) -> tuple[NDArray[np.uint8] | None, dict[int, str]]:
        columns = self.columns
        if columns.mask is not None and columns.categories is not None:
            data = self._bytes(row[columns.mask], 0)
            return decode_labels(data, "of this row", self.masks), _numbered(row[columns.categories])
        if columns.objects is None:
            return None, {}
        things = list(_things(row[columns.objects]))
        names = [self._category(thing) for thing in things]
        known = self.names if 0 < len(self.names) <= _MOST else sorted(set(names))
        if len(known) > _MOST:
            raise ValueError(f"more than {_MOST} categories in a picture")
        numbers = {name: number for number, name in enumerate(known, 1)}
        drawn = [(numbers[name], self._pixels(thing, size)) for name, thing in zip(names, things, strict=True)]
        return draw(drawn, size), {number: name for name, number in numbers.items()}

    def _category(self, thing: Mapping[str, Any]) -> str:
        value = next(thing[name] for name in CATEGORY if name in thing)
        if isinstance(value, str):
            return value
        if not self.names:
            raise InputError(
                "The categories of the objects are numbers without names: save them as ClassLabel or text."
            )
        if not 0 <= int(value) < len(self.names):
            raise ValueError(f"there is no category {value}")
        return self.names[int(value)]

    def _pixels(self, thing: Mapping[str, Any], size: tuple[int, int]) -> NDArray[np.bool_]:
        shape = next((thing[name] for name in OUTLINE if thing.get(name)), None)
        if shape is not None:
            return outline(shape, size)
        return box(next(thing[name] for name in BOXES if name in thing), size, self.boxes)


def _things(value: Any) -> Iterator[Mapping[str, Any]]:
    """Single objects, from a list of objects or from a struct of lists."""
    if isinstance(value, Mapping):
        lists = {name: found for name, found in value.items() if isinstance(found, list)}
        yield from (dict(zip(lists, one, strict=True)) for one in zip(*lists.values(), strict=True))
    else:
        yield from value or ()


def _numbered(value: Any) -> dict[int, str]:
    """Names by number: from a list of {id, name}, a list of names (the first is 1), or JSON of {name: id}."""
    value = json.loads(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return {category_id(number): str(name) for name, number in value.items() if number is not None}
    if all(isinstance(item, str) for item in value):
        return {category_id(number): name for number, name in enumerate(value, 1)}
    return {category_id(item["id"]): str(item["name"]) for item in value}


def _texts(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value or ()
    return tuple(text.strip() for text in texts if isinstance(text, str) and text.strip())


def _class_names(feature: Any) -> list[str]:
    """The class names of the ClassLabel in a column of objects, from the metadata of `datasets`."""
    inside: Sequence[Any] = ()
    if isinstance(feature, Mapping):
        if feature.get("_type") == "ClassLabel":
            return [str(name) for name in feature.get("names") or ()]
        inside = [v for k, v in feature.items() if k in CATEGORY or k == "feature"]
    elif isinstance(feature, list):
        inside = feature
    return next((names for part in inside if (names := _class_names(part))), [])


@register("hf")
def open_rows(where: str) -> Rows:
    folder, options = split_options(where, ("split", "boxes", *ROLES))
    root = Path(folder).expanduser()
    if not folder or not root.is_dir():
        raise InputError(
            f"There is no folder {folder!r}: it should be what save_to_disk of `datasets` wrote, or hold Parquet files."
        )
    boxes = options.pop("boxes", "xywh")
    choose("boxes", boxes, "xywh", "xyxy")
    return Rows(root, options.pop("split", None), options, boxes)
