"""Photographs beside and below each other, as one picture: their things are smaller, and there are more of them.

In Flickr8k nearly every photograph has one large thing in its middle. What tells large things from absent ones need not
tell small ones. All captions of a collage's photographs are its captions.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageOps

from ercr.datasets.registry import open_dataset
from ercr.datasets.sample import Sample, first_picture

GRIDS = ((2, 1), (1, 2), (2, 2))  # columns and rows
_SIDE = 448  # pixels


def write(dataset: str, count: int, folder: Path) -> None:
    """A dataset for `hf:FOLDER,split=train` of photographs drawn from another one."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([*_rows(open_dataset(dataset), count)])
    pq.write_table(table, folder / "train-00000-of-00001.parquet")


def _rows(samples: Sequence[Sample], count: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    for index in range(count):
        grid = GRIDS[index % len(GRIDS)]
        chosen = [samples[int(at)] for at in rng.choice(len(samples), grid[0] * grid[1], replace=False)]
        stream = io.BytesIO()
        collage([first_picture(one) for one in chosen], grid).save(stream, "JPEG", quality=90)
        captions = [text for one in chosen for text in one.references]
        yield {"image": {"bytes": stream.getvalue(), "path": None}, "image_id": f"{index:05d}", "captions": captions}


def collage(pictures: Sequence[Image.Image], grid: tuple[int, int]) -> Image.Image:
    columns, rows = grid
    size = (_SIDE // columns, _SIDE // rows)
    found = Image.new("RGB", (_SIDE, _SIDE))
    for at, picture in enumerate(pictures):
        part = ImageOps.fit(picture.convert("RGB"), size, Image.Resampling.BICUBIC)
        found.paste(part, (at % columns * size[0], at // columns * size[1]))
    return found
