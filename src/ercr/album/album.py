"""The call `explain_files`, and the folder that it writes: rows with words and maps, on request with pages."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ercr.album.job import AlbumJob
from ercr.album.pages import FOLDER, write_index
from ercr.album.plan import AlbumPlan
from ercr.album.rows import maps_of, word_map
from ercr.album.schema import SCHEMA
from ercr.album.sources import Source
from ercr.errors import FileFormatError, InputError
from ercr.evaluate.api import Progress, carry_out
from ercr.evaluate.run import Run
from ercr.explaining.explainer import Explainer
from ercr.explaining.sizes import BatchSize

_INDEX = r"index(-\d+)?\.html"
_COLUMNS = ("index", "picture", "status", "reason", "answer")


class Album:
    """A folder that `ercr explain` wrote for many pictures, finished or not."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.run = _run(path)
        self.path = self.run.path
        if not self.run.begun or self.run.settings.get("kind") != "album":
            raise FileFormatError(f"{self.path} is not a folder that `ercr explain` wrote for many pictures.")

    def rows(self, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """Rows in the order of the pictures, a few at a time; of an unfinished run, the rows so far."""
        for source in self.run.sources():
            for batch in pq.ParquetFile(source).iter_batches(256, columns=columns):
                yield from batch.to_pylist()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.rows()

    @staticmethod
    def maps(row: Mapping[str, Any], word: str | None = None, picture: int | None = None) -> NDArray[np.float32]:
        """The maps [tokens, h, w] of a row, or the map [h, w] of one of its words.

        Of several pictures, or a clip, all cells stand in one row [tokens, 1, cells]; a word's map is that of a
        `picture`, [slices, h, w] of a clip.
        """
        return maps_of(row) if word is None else word_map(row, word, picture)

    def summary(self) -> dict[str, Any]:
        """How many pictures there are, and why some failed."""
        states: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for row in self.rows(["status", "reason"]):
            states[row["status"]] += 1
            if row["status"] == "failed":
                reasons[str(row["reason"]).partition(":")[0]] += 1
        return {"run": str(self.path), "pictures": states.total(), "failed": states["failed"], "reasons": dict(reasons)}

    def write_index(self) -> list[Path]:
        """The index of the pictures' pages."""
        settings = self.run.settings
        total = int(settings["dataset"]["samples"])
        return write_index(self.path, self.rows(list(_COLUMNS)), f"{settings['dataset']['spec']}", total)


def explain_files(
    model: str | Explainer,
    source: str | Source,
    out: str | os.PathLike[str],
    *,
    engine: Literal["local", "ray"] = "local",
    workers: int = 1,
    batch_size: BatchSize = "auto",
    retry_failed: bool = False,
    begin: Callable[[int, int], None] | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = warnings.warn,
    moved: Callable[[float], None] = lambda pictures: None,
    **options: Any,
) -> Album:
    """Explain many pictures into the folder `out`; parts that exist are kept, only missing ones are computed.

    `source` is a folder, a glob, a list, JSON lines, Parquet or a dataset on disk. Further options are the fields of
    `AlbumPlan` (prompt, method, limit, shard, maps, pages, …); the callbacks are those of `ercr.evaluate.evaluate`.
    """
    known = {f.name for f in fields(AlbumPlan)}
    if unknown := sorted(set(options) - known):
        raise InputError(f"There is no option {unknown[0]!r}; there are {', '.join(sorted(known))}.")
    if engine == "ray" and not isinstance(source, str):
        raise InputError("Ray workers open the pictures themselves: give their folder or list by name.")
    name = model if isinstance(model, str) else model.name
    spec = source if isinstance(source, str) else type(source).__name__
    plan = AlbumPlan(model=name, source=spec, **options)
    job, run = AlbumJob(plan), _run(out)
    pictures = job.open() if isinstance(source, str) else source
    if not len(pictures):
        raise InputError(f"There are no pictures in {spec}.")
    carry_out(job, model, pictures, run, engine, workers, batch_size, retry_failed, begin, progress, say, moved)
    album = Album(out)
    if plan.pages:
        album.write_index()
    return album


def _run(path: str | os.PathLike[str]) -> Run:
    return Run(path, SCHEMA, "ercr explain", (FOLDER, _INDEX))
