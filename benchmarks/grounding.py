"""What it costs to tell seen words from guessed ones: time of explaining with grounding over that without.

    python -m benchmarks.grounding --shape qwen2-vl-2b --out grounding.json
    python -m benchmarks.grounding --model photo-mini --pictures a.jpg,b.jpg --single --out grounding-cpu.json

Both ways take turns on the same pictures with the same settings and give the same words and maps; which goes first
alternates. The figure is the median over the turns of the ratio within a turn. On a GPU it is of time on the clock, on
the CPU of processor time, which other programs do not lengthen. Random weights in a published shape, or a model by its
name; noise of 640 x 480 pixels, or pictures of one's own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ercr.benchmark.shapes import random_adapter
from ercr.explaining.explainer import Explainer

Way = Callable[[bool], list[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen2-vl-2b")
    parser.add_argument("--model", help="a packaged model, checkpoint folder or hub id instead of random weights")
    parser.add_argument("--pictures", help="files, separated by commas, instead of noise")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--single", action="store_true", help="no batch")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=6.0, help="no new turn of a row begins after this time")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    explainer = _explainer(given.shape, given.model)
    files = given.pictures.split(",") if given.pictures else []
    pictures = [(file, Image.open(file).convert("RGB")) for file in files] or [("noise", noise(0))]
    limits = given.turns, given.seconds
    rows = []
    for name, picture in pictures:
        row = measure(_single(explainer, picture, given.tokens), *limits)
        rows.append({"row": "one picture", "picture": Path(name).name, "size": list(picture.size), **row})
    if not given.single:
        row = measure(_batch(explainer, [noise(seed) for seed in range(given.batch)], given.tokens), *limits)
        rows.append({"row": f"explain_batch of {given.batch}", "picture": "noise", "size": [640, 480], **row})
    device = torch.cuda.get_device_name() if explainer.adapter.device.type == "cuda" else "cpu"
    document = {
        "model": given.model or f"{given.shape}, random weights",
        "device": device,
        "clock": "time" if device != "cpu" else "processor time",
        "dtype": str(explainer.adapter.model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "tokens": given.tokens,
        "median over rows": statistics.median(row["ratio"] for row in rows),
        "rows": rows,
    }
    given.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def _explainer(shape: str, model: str | None) -> Explainer:
    if model is not None:
        return Explainer.from_pretrained(model)
    cuda = torch.cuda.is_available()
    return Explainer.around(
        random_adapter(shape, "cuda" if cuda else "cpu", torch.bfloat16 if cuda else torch.float32), shape
    )


def noise(seed: int) -> Image.Image:
    """A picture of coarse noise."""
    field = np.random.default_rng(seed).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    return Image.fromarray(field.repeat(8, 0).repeat(8, 1))


def _single(explainer: Explainer, picture: Image.Image, tokens: int) -> Way:
    return lambda grounding: [explainer.explain(picture, max_new_tokens=tokens, grounding=grounding)]


def _batch(explainer: Explainer, pictures: list[Image.Image], tokens: int) -> Way:
    return lambda grounding: explainer.explain_batch(
        pictures, max_new_tokens=tokens, grounding=grounding, progress=False
    )


def measure(way: Way, turns: int, seconds: float) -> dict[str, Any]:
    """Both ways in turns, after one of each that is not counted."""
    told = {grounding: way(grounding) for grounding in (False, True)}
    spent: dict[bool, list[float]] = {False: [], True: []}
    began = time.perf_counter()
    for turn in range(turns):
        for grounding in (False, True) if turn % 2 == 0 else (True, False):
            spent[grounding].append(_timed(way, grounding))
        if time.perf_counter() - began > seconds:
            break
    ratios = [with_ / without for without, with_ in zip(spent[False], spent[True], strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "turns": len(ratios),
        "seconds without": statistics.median(spent[False]),
        "seconds with": statistics.median(spent[True]),
        "answer tokens": len(told[True][0].tokens),
        "same words": [one.text for one in told[False]] == [one.text for one in told[True]],
    }


def _timed(way: Way, grounding: bool) -> float:
    cuda = torch.cuda.is_available()
    clock = time.perf_counter if cuda else time.process_time
    if cuda:
        torch.cuda.synchronize()
    began = clock()
    way(grounding)
    if cuda:
        torch.cuda.synchronize()
    return clock() - began


if __name__ == "__main__":
    main()
