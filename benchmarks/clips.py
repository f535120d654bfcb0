"""What explaining a clip costs beside the model's own `generate`, with random weights in a published shape.

    python -m benchmarks.clips --shape qwen2-vl-2b --frames 64 --tokens 64 --out clips.json

Both take the frames in memory and give the same tokens. They take turns, and each figure is the median over the turns.
`prepared` leaves out what both spend on making the model's inputs of the frames; memory is the peak on the device.
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

from ercr.benchmark.shapes import random_adapter
from ercr.explaining.explainer import Explainer
from ercr.explaining.media import asked, load, media
from ercr.image.clips import Clip
from ercr.methods.registry import resolve
from ercr.models.inputs import Prepared
from ercr.trace.tokens import pad_token

PROMPT = "What happens in this video?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen2-vl-2b")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--size", default="640x360", help="width x height of a frame")
    parser.add_argument("--tokens", default="64", help="lengths of the answer, separated by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    cuda = torch.cuda.is_available()
    adapter = random_adapter(arguments.shape, "cuda" if cuda else "cpu", torch.bfloat16 if cuda else torch.float32)
    explainer = Explainer.around(adapter, arguments.shape)
    width, height = map(int, arguments.size.split("x"))
    clip = moving_noise(arguments.frames, height, width)
    rows = [measure(explainer, clip, int(length), arguments.repeats) for length in arguments.tokens.split(",")]
    device = torch.cuda.get_device_name() if cuda else "cpu"
    document = {"model": arguments.shape, "device": device, "torch": torch.__version__, "rows": rows}
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def moving_noise(frames: int, height: int, width: int) -> Clip:
    """A picture of noise that moves sideways."""
    field = np.random.default_rng(0).integers(0, 256, (height // 8 + 1, width // 4, 3), dtype=np.uint8)
    field = field.repeat(8, 0).repeat(8, 1)
    return Clip([field[:height, 4 * i : 4 * i + width] for i in range(frames)], fps=2.0)


def measure(explainer: Explainer, clip: Clip, tokens: int, repeats: int) -> dict[str, Any]:
    """Seconds and peak memory of `generate` and of explaining, from frames and from prepared inputs."""
    runs, adapter = explainer.runs, explainer.adapter
    options = {"max_new_tokens": tokens, "do_sample": False, "num_beams": 1}
    chosen = resolve("ercr")
    wanted = asked(clip, PROMPT)

    def prepared() -> Prepared:
        shown = media(load(wanted.sources, adapter.sample_frames))
        return adapter.prepare(shown, wanted.messages)

    def generate(inputs: Prepared) -> Any:
        with torch.no_grad():
            return adapter.model.generate(**adapter.collate([inputs], pad_token(adapter)), **options)

    inputs, ready = prepared(), runs.ready_alone(clip, PROMPT, None, [chosen])
    ways: dict[str, Callable[[], Any]] = {
        "generate": lambda: generate(prepared()),
        "explain": lambda: explainer.explain(clip, PROMPT, max_new_tokens=tokens),
        "generate, prepared": lambda: generate(inputs),
        "explain, prepared": lambda: runs.explain([ready], [chosen], options),
    }
    said = {name: way() for name, way in ways.items()}  # also warms up
    own = said["generate"][0, len(inputs.input_ids) :].tolist()
    ours = [token.id for token in said["explain"].text_tokens if token.kind == "answer"]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    peaks: dict[str, list[int]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            spent, peak = timed(way)
            seconds[name].append(spent)
            peaks[name].append(peak)
    row: dict[str, Any] = {"frames": len(clip.source), "visual_tokens": len(inputs.visual), "tokens": tokens}
    row["same_tokens"] = own == ours
    for name in ways:
        row[name] = {"seconds": statistics.median(seconds[name]), "GiB": max(peaks[name]) / 2**30}
    for kind in ("", ", prepared"):
        one, other = row[f"explain{kind}"], row[f"generate{kind}"]
        row[f"ratio{kind}"] = {unit: one[unit] / other[unit] if other[unit] else None for unit in ("seconds", "GiB")}
    return row


def timed(way: Callable[[], Any]) -> tuple[float, int]:
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    way()
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began, torch.cuda.max_memory_allocated() if cuda else 0


if __name__ == "__main__":
    main()
