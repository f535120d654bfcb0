"""Measure what this package's readings of the paper's equations change, on the packaged models for drawn scenes.

    python docs/tools/departures.py

Each line explains the same scenes with and without one of them, and prints the largest and the mean absolute change of
the answers' maps, model by model. The table in docs/methods.md has these figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F

import ercr
from ercr.datasets import Scenes
from ercr.image import geometry
from ercr.methods import ercr as method
from ercr.methods import readout, smoothing

MODELS = ("scenes-qwen2vl", "scenes-llava", "scenes-internvl")
SCENES = 6
CACHES = (geometry._extent, geometry._reading, geometry.interpolation, geometry._interpolation_tensors)
LARGER = {"scales": (0.75, 1.0, 1.5)}


@contextmanager
def other_code(target: Any, name: str, value: Any) -> Iterator[None]:
    """A function or number of the package replaced, with nothing remembered from before or left behind."""
    remembered = (*CACHES, readout.covered_cells, method._shares, smoothing._windows)
    with patch.object(target, name, value):
        for cache in remembered:
            cache.cache_clear()
        yield
    for cache in remembered:
        cache.cache_clear()


def all_cells(view: geometry.Geometry) -> tuple[int, int, int, int]:
    return 0, view.grid[0] - 1, 0, view.grid[1] - 1


def limited_views(adapter: Any) -> Any:
    """Dynamic resolution with the processor's own pixel limits for views, too."""
    from PIL import Image

    def view_inputs(image: Image.Image, anchor: Any, scale: float, kind: str) -> Any:
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        small = image.resize(size, resample=Image.Resampling(int(adapter.image_processor.resample)))
        return adapter._process(small, image.size)

    return other_code(adapter, "view_inputs", view_inputs)


def every_view_counts(views: Any, anchor: Any, device: torch.device) -> None:
    return None


def edge_windows(height: int, width: int, device: torch.device, dtype: torch.dtype) -> Any:
    """The filter's windows with the border's cells repeated instead of mirrored."""
    cells = torch.arange(height * width, dtype=torch.float64).view(1, height, width)
    around = F.pad(cells, (1, 1, 1, 1), mode="replicate").unfold(-2, 3, 1).unfold(-2, 3, 1).flatten().long()
    return around.to(device), (-((torch.arange(9.0) - 4.0) ** 2) / 2).to(device, dtype)


@contextmanager
def whole_context(adapter: Any) -> Iterator[None]:
    """Template, system text and special tokens as context, too: everything but the image's own tokens."""
    ours = adapter.prepare

    def prepare(*arguments: Any) -> Any:
        sample = ours(*arguments)
        text = (sample.input_ids != adapter.image_token_id).nonzero()[:, 0]
        return replace(sample, prompt=text[text > 0])  # nothing emits the first token

    with (
        patch.object(adapter, "prepare", prepare),
        patch.object(adapter, "plain_tokens", torch.ones_like(adapter.plain_tokens)),
    ):
        yield


Way = tuple[str, dict[str, Any], dict[str, Any], Callable[[Any], Any], tuple[str, ...]]
SAME: dict[str, Any] = {}
WAYS: tuple[Way, ...] = (
    ("2: negative logits kept", SAME, {"clip": False}, lambda a: nullcontext(), MODELS),
    ("4: smaller canvases", SAME, {"views": "interpolate"}, lambda a: nullcontext(), MODELS[1:]),
    ("4: pixel limits for views, scales 0.75/1/1.5", LARGER, LARGER, limited_views, MODELS[:1]),
    ("6: edges from all cells", SAME, SAME, lambda a: other_code(geometry, "_extent", all_cells), MODELS[1:]),
    ("7: tiny spans stretched", SAME, SAME, lambda a: other_code(readout, "_FLAT", 0.0), MODELS),
    (
        "7: all views count everywhere, scales 0.75/1/1.5", LARGER, LARGER,
        lambda a: other_code(method, "covered_cells", every_view_counts), MODELS[1:],
    ),
    ("13, 14: all text as context", SAME, SAME, whole_context, MODELS),
    ("18: borders repeated", SAME, SAME, lambda a: other_code(smoothing, "_windows", edge_windows), MODELS),
)  # fmt: skip


def answers(explanation: ercr.Explanation) -> Any:
    return explanation.maps[[t.row for t in explanation.text_tokens if t.kind == "answer"]]


def main() -> None:
    torch.set_num_threads(1)
    pictures = [sample.image for sample in Scenes(SCENES, start=900_000)]
    for name in MODELS:
        explainer = ercr.Explainer.from_pretrained(name)
        said = [explainer.explain(picture, method="cam").text for picture in pictures]
        for title, ours, theirs, code, models in WAYS:
            if name not in models:
                continue
            before = [answers(explainer.explain(p, answer=a, **ours)) for p, a in zip(pictures, said, strict=True)]
            with code(explainer.adapter):
                after = [answers(explainer.explain(p, answer=a, **theirs)) for p, a in zip(pictures, said, strict=True)]
            change = np.concatenate([np.abs(a - b).ravel() for a, b in zip(before, after, strict=True)])
            print(f"{name} {title}: max {change.max():.3f}, mean {change.mean():.4f}", flush=True)


if __name__ == "__main__":
    main()
