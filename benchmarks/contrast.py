"""What `contrast` costs over `ercr`: one picture and a bulk run, on random weights in a published shape, in turns.

python -m benchmarks.contrast --out docs/tables/speed-contrast.json
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

from ercr.benchmark.measure import synchronize
from ercr.benchmark.rows import PROMPT
from ercr.benchmark.shapes import random_adapter
from ercr.explaining.explainer import Explainer

METHODS = ("ercr", "contrast")
SIZE = (640, 480)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen2-vl-2b")
    parser.add_argument("--model", help="a model to load, instead of random weights in a shape")
    parser.add_argument("--pictures", type=int, default=32, help="pictures of the bulk run")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--turns", type=int, default=7, help="of the single picture; the bulk run takes a third")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    if arguments.model:
        explainer = Explainer.from_pretrained(arguments.model)
    else:
        explainer = Explainer.around(random_adapter(arguments.shape, device, dtype), arguments.shape)
    document = {
        "model": arguments.model or f"random weights, {arguments.shape}",
        "device": torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads",
        "dtype": str(dtype).removeprefix("torch."),
        "new_tokens": arguments.tokens,
        "size": SIZE,
        "rows": measure(explainer, torch.device(device), arguments),
    }
    text = json.dumps(document, indent=1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text + "\n")
    print(text)


def measure(explainer: Explainer, device: torch.device, arguments: Any) -> dict[str, Any]:
    noise = np.random.default_rng(0)
    pictures = [
        Image.fromarray(noise.integers(0, 256, (*SIZE[::-1], 3), dtype=np.uint8)) for _ in range(arguments.pictures)
    ]
    options = {"max_new_tokens": arguments.tokens}

    def single(method: str) -> Callable[[], object]:
        return lambda: explainer.explain(pictures[0], PROMPT, method=method, **options)

    def bulk(method: str) -> Callable[[], object]:
        return lambda: explainer.explain_batch(pictures, PROMPT, method=method, progress=False, **options)

    return {
        "single": in_turns({method: single(method) for method in METHODS}, device, arguments.turns),
        f"bulk of {len(pictures)}": in_turns(
            {method: bulk(method) for method in METHODS}, device, max(3, arguments.turns // 3)
        ),
    }


def in_turns(calls: dict[str, Callable[[], object]], device: torch.device, turns: int) -> dict[str, Any]:
    """Median seconds of each, measured in turns, and how much the second costs over the first."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in list(calls.items())[:: 1 if turn % 2 else -1]:  # neither always follows the other
            synchronize(device)
            began = time.perf_counter()
            call()
            synchronize(device)
            if turn:  # the first turn warms up
                taken[name].append(time.perf_counter() - began)
    base, ours = (taken[name] for name in METHODS)
    return {
        "seconds": {name: round(statistics.median(own), 5) for name, own in taken.items()},
        "spread": {name: [round(min(own), 5), round(max(own), 5)] for name, own in taken.items()},
        "ratio": round(statistics.median(ours) / statistics.median(base), 4),
        "ratio_of_turns": round(statistics.median(b / a for a, b in zip(base, ours, strict=True)), 4),
    }


if __name__ == "__main__":
    main()
