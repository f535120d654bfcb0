"""The generic adapter beside the families' own: the same maps, and what asking costs.

    python -m benchmarks.generic scenes --model scenes-llava --scenes 100 --out docs/tables/generic-scenes-llava.json
    python -m benchmarks.generic cost --shape qwen2-vl-2b --device cuda

`scenes` explains drawn scenes by both adapters of a packaged model. `cost` takes random weights in a published shape;
`smolvlm-500m` has no adapter of its own. Building a whole processor needs torchvision.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import ercr
from benchmarks.shapes import whole
from ercr.datasets import Scenes
from ercr.evaluate import evaluate
from ercr.models.loading import wrap_model

FIRST_SEED = 900_000
METHODS = ("cam", "tam", "ercr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("scenes", "cost"))
    parser.add_argument("--model", default="scenes-llava")
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--shape", default="qwen2-vl-2b")
    parser.add_argument("--size", default="640x480", help="of the picture")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = beside(given.model, given.scenes) if given.table == "scenes" else cost(given)
    print(json.dumps(found, indent=1))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


def beside(model: str, count: int) -> dict[str, Any]:
    """Maps of both adapters on the same scenes, and their scores."""
    dataset = Scenes(count, FIRST_SEED)
    explainers = {kind: ercr.Explainer.from_pretrained(model, generic=kind == "generic") for kind in ("own", "generic")}
    largest, means, equal = dict.fromkeys(METHODS, 0.0), {name: list[float]() for name in METHODS}, 0
    for sample in dataset:
        own, generic = (
            explainer.explain_all(sample.image, sample.prompt, methods=METHODS, max_new_tokens=64)
            for explainer in explainers.values()
        )
        equal += [t.id for t in own[0].text_tokens] == [t.id for t in generic[0].text_tokens]
        for name, a, b in zip(METHODS, own, generic, strict=True):
            difference = np.abs(a.maps - b.maps)
            largest[name] = max(largest[name], float(difference.max(initial=0)))
            means[name].append(float(difference.mean()))
    scores = {}
    for kind, explainer in explainers.items():
        with tempfile.TemporaryDirectory() as folder:
            run = evaluate(explainer, dataset, METHODS, Path(folder) / "run", protocol="clean", max_new_tokens=64)
            scores[kind] = {
                name: {score: round(100 * found[score]["value"], 2) for score in ("obj_iou", "func_iou", "f1_iou")}
                for name, found in run.scores().items()
            }
    return {
        "model": model,
        "scenes": count,
        "answers equal": equal,
        "largest difference of maps": largest,
        "mean difference of maps": {name: float(np.mean(values)) for name, values in means.items()},
        "scores": scores,
    }


def cost(given: Any) -> dict[str, Any]:
    """Milliseconds of the probe of one picture size, of a forward pass of the tower, and of explaining."""
    width, height = (int(side) for side in given.size.split("x"))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8))
    dtype = torch.bfloat16 if given.device == "cuda" else torch.float32
    model, processor = whole(given.shape, given.device, dtype)
    generic = ercr.Explainer(model, processor, generic=True)
    found: dict[str, Any] = {"shape": given.shape, "device": given.device, "dtype": str(dtype), "size": given.size}

    def probe() -> None:
        generic.adapter._layouts.forget()  # type: ignore[attr-defined]
        generic.adapter.layout(image.size)  # type: ignore[attr-defined]

    probe()
    prepared = generic.adapter.prepare(image, [{"role": "user", "content": [{"type": "image"}, _text("What?")]}])
    batch = generic.adapter.pack([prepared], 0)
    found["visual tokens"] = prepared.geometry.tokens
    found["up to the decoder"] = _time(lambda: generic.adapter.decoder_inputs(batch), given)
    found["probe"] = _time(probe, given)
    adapters = {"generic": generic}
    if type(wrap_model(model, processor)) is not type(generic.adapter):
        adapters["own"] = ercr.Explainer(model, processor)
    for method in ("cam", "ercr"):
        for kind, explainer in adapters.items():

            def explain(explainer: ercr.Explainer = explainer, method: str = method) -> None:
                explainer.explain(image, "What?", method=method, max_new_tokens=16)

            found[f"{method}, {kind}"] = _time(explain, given)
    return found


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _time(function: Callable[[], object], given: Any) -> float:
    """The median of a few calls, in milliseconds."""
    if given.repeats > 1:
        function()
    spent = []
    for _ in range(given.repeats):
        started = time.perf_counter()
        function()
        if given.device == "cuda":
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - started)
    return round(1000 * float(np.median(spent)), 1)


if __name__ == "__main__":
    from tests.families.torchvision_here import make_importable

    make_importable()
    main()
