"""Flickr8k as the training reads it: pictures of one size on the device, captions as token numbers."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .prompts import CAPTION, PROMPTS, prompt_ids
from .words import plainest_first, tidy, undressed

SIDE = 288  # pixels of the stored squares, the model's own canvas
_LIMIT = 15 * 2**20  # bytes of a packed file
_FALL = 2.0  # each of a picture's captions, the plainest first, comes so many times less often than the one before


def pack(source: Path, out: Path) -> None:
    """Write the Parquet files of Flickr8k as plain arrays, in files that are small enough to be sent around."""
    import pyarrow.parquet as parquet

    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val", "test"):
        tables = [parquet.read_table(file) for file in sorted(source.glob(f"{split}-*.parquet"))]
        rows = [row for table in tables for row in table.to_pylist()]
        files: list[list[dict[str, Any]]] = [[]]
        size = 0
        for row in rows:
            size += len(row["image"]["bytes"])
            if size > _LIMIT:
                files.append([])
                size = len(row["image"]["bytes"])
            files[-1].append(row)
        for number, part in enumerate(files):
            _write(out / f"flickr8k-{split}-{number:02d}.npz", part)


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    pictures = [np.frombuffer(row["image"]["bytes"], np.uint8) for row in rows]
    captions = json.dumps([list(row["captions"]) for row in rows]).encode()
    ends = np.cumsum([len(picture) for picture in pictures])
    np.savez(file, data=np.concatenate(pictures), ends=ends, captions=np.frombuffer(captions, np.uint8))


@dataclass(frozen=True)
class Split:
    pictures: Tensor  # [N, 3, SIDE, SIDE], 8 bits
    captions: list[list[str]]

    def plus(self, other: Split) -> Split:
        return Split(torch.cat([self.pictures, other.pictures]), self.captions + other.captions)


def read(folder: Path, split: str, most: int | None = None) -> Split:
    """The pictures of a split, squeezed to squares as the model's processor does, and their captions."""
    files, captions = _stored(folder, split)
    with ThreadPoolExecutor() as pool:
        pictures = list(pool.map(_square, files[:most]))
    return Split(torch.from_numpy(np.stack(pictures)), captions[:most])


def read_captions(folder: Path, split: str) -> list[list[str]]:
    return _stored(folder, split)[1]


def _stored(folder: Path, split: str) -> tuple[list[np.ndarray[Any, Any]], list[list[str]]]:
    files, captions = [], []
    for path in sorted(folder.glob(f"flickr8k-{split}-*.npz")):
        stored = np.load(path)
        files += np.split(stored["data"], stored["ends"][:-1])
        captions += json.loads(stored["captions"].tobytes())
    if not files:
        raise SystemExit(
            f"{folder} has no packed files of the {split} split: `python -m training.photo pack` makes them."
        )
    return files, [[tidy(caption) for caption in one] for one in captions]


def _square(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    picture = Image.open(io.BytesIO(data.tobytes())).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.asarray(picture).transpose(2, 0, 1)


@dataclass(frozen=True)
class Text:
    """Captions behind their prompts, padded on the right."""

    ids: Tensor  # [B, T]
    labels: Tensor  # [B, L]: the caption's tokens and its end
    start: Tensor  # [B]: where in `ids` the caption begins


class Captions:
    """Draws captions as token numbers; every batch has the same length, as captured steps need."""

    def __init__(self, captions: Sequence[Sequence[str]], tokenizer: Any, longest: int = 28) -> None:
        end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.prompts = [prompt_ids(tokenizer, prompt) for prompt in PROMPTS]
        self.tokenizer, self.longest, self.pad = tokenizer, longest, end
        self.ids = [[self.encode(undressed(caption)) for caption in plainest_first(group)] for group in captions]
        self.length = longest + max(len(ids) for ids in self.prompts)

    def encode(self, caption: str) -> list[int]:
        return [*self.tokenizer(caption, add_special_tokens=False).input_ids[: self.longest - 1], self.pad]

    def draw(self, groups: Sequence[Sequence[list[int]]], chance: random.Random) -> Text:
        """One caption of each group, behind a prompt; the prompt the model is measured with comes most often."""
        weights = [3 if prompt == CAPTION else 1 for prompt in PROMPTS]
        pairs = [
            (
                chance.choices(self.prompts, weights)[0],
                chance.choices(group, [_FALL**-i for i in range(len(group))])[0],
            )
            for group in groups
        ]
        return self.text(pairs)

    def text(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Text:
        """Prompts with their captions."""
        ids = [(prompt + caption + [self.pad] * self.length)[: self.length] for prompt, caption in pairs]
        labels = [caption + [-100] * (self.longest - len(caption)) for _, caption in pairs]
        return Text(torch.tensor(ids), torch.tensor(labels), torch.tensor([len(prompt) for prompt, _ in pairs]))
