"""What explaining photographs costs, from pictures in memory to explanations; all rows in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ercr.benchmark.measure import synchronize
from ercr.benchmark.rows import PROMPT, Document, Row
from ercr.errors import InputError
from ercr.explaining.explainer import Explainer
from ercr.image.images import load_image
from ercr.models.base import Adapter
from ercr.trace.ranked import vocabulary_size

# width and height of photographs in COCO, with how many of a hundred have them; the rest is drawn as below
_COMMON = {
    (640, 480): 24,
    (640, 427): 14,
    (640, 426): 4,
    (375, 500): 4,
    (640, 428): 3,
    (640, 425): 3,
    (480, 640): 3,
    (500, 375): 3,
    (425, 640): 2,
    (427, 640): 2,
    (612, 612): 2,
}
_LONG = (640, 640, 640, 640, 500)  # the longer side of the others
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
_LONGER = 4  # times the tokens of an answer from which the cost of a token is measured
_REPEATS = 3
Public = Callable[[Image.Image], object]  # another package's way from a picture to maps


def photographs(folder: Path, count: int) -> list[Image.Image]:
    """The first pictures of a folder by name; they come again from the start if there are too few."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES) if folder.is_dir() else []
    if not files:
        raise InputError(f"There are no pictures in {folder}: name a folder with .jpg or .png files.")
    found = [load_image(file).rgb for file in files[:count]]
    return [found[number % len(found)] for number in range(count)]


def drawn(count: int, sizes: int | None = None, seed: int = 0) -> list[Image.Image]:
    """Pictures of smooth noise, in sizes as frequent as in COCO, or in so many sizes of its kind."""
    rng = np.random.default_rng(seed)
    shapes = [_size(rng) for _ in range(count)]
    if sizes is not None:
        kinds = list(dict.fromkeys(_size(rng) for _ in range(64 * sizes)))[:sizes]
        shapes = [kinds[number % len(kinds)] for number in range(count)]
    return [_smooth(rng, size) for size in shapes]


def _size(rng: np.random.Generator) -> tuple[int, int]:
    drawn, before = rng.integers(100), 0
    for size, share in _COMMON.items():
        before += share
        if drawn < before:
            return size
    long, short = int(rng.choice(_LONG)), int(rng.integers(300, 500))
    return (long, short) if rng.random() < 0.75 else (short, long)


def _smooth(rng: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    coarse = rng.integers(0, 256, (size[1] // 16, size[0] // 16, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


class Photographs:
    """An explainer, pictures, and how they are explained; times include everything from pictures in memory on."""

    def __init__(
        self, explainer: Explainer, pictures: Sequence[Image.Image], tokens: int, method: str = "ercr"
    ) -> None:
        self.explainer, self.adapter, self.pictures = explainer, explainer.adapter, list(pictures)
        self.tokens, self.method = tokens, method
        ends = self.adapter.model.generation_config.eos_token_id
        never = vocabulary_size(self.adapter)  # no token has this id, so no answer ends early
        self.options: dict[str, Any] = {"method": method, "max_new_tokens": tokens}
        self.options["generation"] = None if ends is None else {"eos_token_id": never}

    def bulk(self, pictures: Sequence[Image.Image], **more: Any) -> Row:
        """`explain_batch`: the second run counts, so that nothing is compiled or captured in it."""
        options: dict[str, Any] = {**self.options, "progress": False, **more}

        def run() -> object:
            return self.explainer.explain_batch(pictures, PROMPT, **options)

        self._timed(run)
        seconds, memory = min(self._timed(run) for _ in range(_REPEATS - 1))
        return {"seconds": seconds / len(pictures), "pictures_per_second": len(pictures) / seconds, "memory_gb": memory}

    def one_by_one(self, pictures: Sequence[Image.Image], before: Sequence[Image.Image] = ()) -> Row:
        """`explain` of each picture, the mean of all; pictures explained `before` do not count."""
        for image in before:
            self.explainer.explain(image, PROMPT, **self.options)
        taken = []
        for image in pictures:
            seconds, memory = self._timed(partial(self.explainer.explain, image, PROMPT, **self.options))
            taken.append(seconds)
        return {
            "seconds": statistics.mean(taken),
            "median": statistics.median(taken),
            "spread": [min(taken), max(taken)],
            "first": [round(seconds, 4) for seconds in taken[:10]],
            "memory_gb": memory,
        }

    def again(self, repeats: int = 7) -> Row:
        """One picture again and again: the median."""
        row = self.one_by_one(self.pictures[:1] * repeats, self.pictures[:1] * 3)
        return {**row, "seconds": row["median"]}

    def per_token(self) -> float:
        """Seconds of a further token of the answer, from two lengths of answers."""
        image, seconds = self.pictures[0], []
        for tokens in (self.tokens, _LONGER * self.tokens):
            options = {**self.options, "max_new_tokens": tokens, "method": "cam"}
            run = partial(self.explainer.explain, image, PROMPT, **options)
            seconds.append(statistics.median([self._timed(run)[0] for _ in range(_REPEATS + 2)][2:]))
        return (seconds[1] - seconds[0]) / ((_LONGER - 1) * self.tokens)

    def generate(self) -> Callable[[], object]:
        """The model's own `generate`, from tensors."""
        prepared = self.explainer.runs.ready(self.pictures[0], PROMPT, None).request.prepared
        inputs = self.adapter.collate([prepared], 0)
        ends = self.options["generation"] or {}
        options = {"max_new_tokens": self.tokens, "do_sample": False, "pad_token_id": 0, **ends}
        return torch.no_grad()(lambda: self.adapter.model.generate(**inputs, **options))

    def _timed(self, function: Callable[[], object]) -> tuple[float, float | None]:
        device, cuda = self.adapter.device, self.adapter.device.type == "cuda"
        synchronize(device)
        if cuda:
            torch.cuda.reset_peak_memory_stats(device)
        began = time.perf_counter()
        function()
        synchronize(device)
        return time.perf_counter() - began, torch.cuda.max_memory_allocated(device) / 2**30 if cuda else None


def weights_seconds(adapter: Adapter, bandwidth: float = 4.3e12) -> float:
    """Seconds to read the decoder's weights and the head once, at a device's bandwidth in bytes a second."""
    read = sum(p.numel() * p.dtype.itemsize for block in adapter.blocks for p in block.parameters())
    head: Any = adapter.head
    return float((read + head.weight.numel() * head.weight.dtype.itemsize) / bandwidth)


def rows(
    bench: Photographs, mode: str, same: Sequence[Image.Image], new: Sequence[Image.Image], alone: bool = True
) -> Iterator[tuple[str, Callable[[], Row]]]:
    """The rows of one mode, `eager` or `compiled`, each measured by a call: mixed sizes, one size, one at a time."""
    distinct = len({image.size for image in bench.pictures})
    yield (
        f"bulk, {len(bench.pictures)} photographs of {distinct} sizes, {mode}",
        partial(bench.bulk, bench.pictures),
    )
    yield f"bulk, {len(same)} pictures of one size, {mode}", partial(bench.bulk, same)
    if alone:
        yield f"one by one, {len(new)} photographs, {mode}", partial(bench.one_by_one, new)
        yield f"one picture again and again, {mode}", bench.again


def growth(bench: Photographs, count: int = 96) -> Document:
    """Pictures a second by number of distinct sizes, batch size and length of the answer; memory over many pictures."""
    found: Document = {"sizes": [], "batch": [], "answer": []}
    for sizes in (1, 8, 48):
        found["sizes"].append({"sizes": sizes, **bench.bulk(drawn(count, sizes))})
    for size in (1, 8, 32, 128):
        most = bench.pictures[: max(8, min(count, 3 * size))]
        found["batch"].append({"batch": size, **bench.bulk(most, batch_size=size)})
    for tokens in (16, 64, 256):
        found["answer"].append({"tokens": tokens, **bench.bulk(bench.pictures[:count], max_new_tokens=tokens)})
    return found


def memory_level(bench: Photographs, total: int, times: int = 20) -> list[Row]:
    """Peak memory on the device and of the process while `total` pictures run through `explain_iter`, so many times."""
    every = max(1, total // times)
    coming = (bench.pictures[number % len(bench.pictures)] for number in range(total))
    found: list[Row] = []
    began, cuda = time.perf_counter(), bench.adapter.device.type == "cuda"
    for number, _ in enumerate(bench.explainer.explain_iter(coming, PROMPT, progress=False, **bench.options), 1):
        if number % every == 0:
            peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
            row: Row = {"pictures": number, "memory_gb": peak, "process_gb": resident()}
            found.append({**row, "seconds": time.perf_counter() - began})
            if cuda:
                torch.cuda.reset_peak_memory_stats()
    return found


def resident() -> float | None:
    """GiB of memory that this process holds now (Linux)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 2**20
