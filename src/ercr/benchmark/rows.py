"""Rows of the efficiency table, and growth of time and memory; each function measures and returns plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

from ercr.benchmark import public_tam
from ercr.benchmark.measure import Cost, device_time, operations, passes, time_of, together
from ercr.explaining.bulk import Ready
from ercr.explaining.decoding import decoding
from ercr.explaining.explainer import Explainer
from ercr.explaining.sizes import BatchSize
from ercr.explanation import Explanation
from ercr.image.images import load_image
from ercr.methods import resolve
from ercr.models.base import Adapter
from ercr.trace import Needs, TraceRequest
from ercr.trace.ranked import vocabulary_size
from ercr.trace.tokens import pad_token

PROMPT = "Describe it:"
Row = dict[str, Any]  # of benchmark.json
Document = dict[str, Any]  # the whole file
PUBLIC, PLAIN, STATIC = "TAM, public code", "plain generate", "plain generate, static cache"
TABLE = {"PCR only": "ercr:views=1", "ER only": "ercr:context=none", "ERCR": "ercr"}  # the paper's rows
PEAK = 790e12  # dense bfloat16 operations a second, assumed for an H200


def picture(grid: tuple[int, int], cell: int, seed: int = 0) -> Image.Image:
    """Noise that becomes a grid of this many tokens, rows by columns, in families of dynamic resolution."""
    size = (grid[0] * cell, grid[1] * cell, 3)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8))


@contextmanager
def allowing(adapter: Adapter, image: Image.Image) -> Iterator[None]:
    """Raise a family's limit on the area of pictures for this picture, and restore it afterwards."""
    processor: Any = adapter.image_processor
    size: Any = getattr(processor, "size", None)
    limits = dict(size or {})
    if not {"shortest_edge", "longest_edge"} <= limits.keys():
        yield  # a fixed canvas
        return
    limits["longest_edge"] = max(limits["longest_edge"], image.width * image.height)
    processor.size = type(size)(**limits)
    try:
        yield
    finally:
        processor.size = size


class Bench:
    """An explainer with one prepared picture; times exclude preparing pictures unless stated otherwise."""

    def __init__(self, explainer: Explainer, image: Image.Image, tokens: int, repeats: int = 5) -> None:
        self.explainer, self.adapter = explainer, explainer.adapter
        self.device = explainer.adapter.device
        self.image, self.tokens, self.repeats = load_image(image), tokens, repeats
        never = vocabulary_size(self.adapter)  # no token has this id, so no answer ends early
        ends = self.adapter.model.generation_config.eos_token_id
        self._unending = {} if ends is None else {"eos_token_id": never}
        self.options = decoding(tokens, self._unending or None)

    def sample(self, method: str) -> TraceRequest:
        chosen, settings = resolve(method)
        needs = chosen.needs(settings)
        return self.explainer.runs.ready(self.image, PROMPT, None, needs.cells, [needs]).request

    def explain(self, method: str, batch: int = 1) -> Callable[[], list[list[Explanation]]]:
        ready, chosen = [Ready(self.image, self.sample(method))] * batch, [resolve(method)]
        return lambda: self.explainer.runs.explain(ready, chosen, self.options)

    def generate(self, **more: Any) -> Callable[[], object]:
        inputs = self.adapter.collate([self.sample("cam").prepared], pad_token(self.adapter))
        options = {"max_new_tokens": self.tokens, "do_sample": False, **self._unending, **more}
        return torch.no_grad()(lambda: self.adapter.model.generate(**inputs, **options))

    def public(self) -> Callable[[], object]:
        prepared = self.sample("cam").prepared
        return lambda: public_tam.explain(self.adapter, prepared, self.tokens)


def table(bench: Bench, methods: Sequence[str]) -> dict[str, Row]:
    """All rows by name, the public code first; `overhead` is relative to it."""
    functions = {PUBLIC: bench.public(), PLAIN: bench.generate()}
    functions |= {name: bench.explain(method) for name, method in {**TABLE, **{m: m for m in methods}}.items()}
    costs = together(functions, bench.device, bench.repeats)
    counted = {
        name: replace(cost, tflops=operations(functions[name]) / 1e12, forwards=passes(bench.adapter, functions[name]))
        for name, cost in costs.items()
    }
    return {name: _row(cost, costs[PUBLIC], costs[PLAIN]) for name, cost in counted.items()}


def compiled(bench: Bench, plain: Cost, public: float) -> dict[str, Row]:
    """Rows of a model that uses CUDA graphs; `plain` is the cost of `generate` with a static cache."""
    functions = {"CAM, compiled": bench.explain("cam"), "ERCR, compiled": bench.explain("ercr")}
    costs = together(functions, bench.device, bench.repeats)
    base = Cost(public, (public, public), None)
    return {STATIC: _row(plain, base, plain), **{name: _row(cost, base, plain) for name, cost in costs.items()}}


def _row(cost: Cost, public: Cost, plain: Cost) -> Row:
    return {
        **asdict(cost),
        "seconds_per_sample": cost.seconds,
        "overhead": cost.seconds / public.seconds,
        "over_generate": cost.seconds / plain.seconds,
        "memory_over_generate": None if not plain.memory_gb else (cost.memory_gb or 0) / plain.memory_gb,
    }


def bulk(bench: Bench, sizes: Sequence[int], number: int, method: str = "ercr") -> Iterator[Row]:
    """Images a second by batch size: with pictures prepared in advance, and from pictures in memory."""
    for size in sizes:
        ready = time_of(bench.explain(method, size), bench.device, repeats=2, warm=1)
        row = {"batch": size, "images_per_second": size / ready.seconds, "memory_gb": ready.memory_gb}
        if number >= size:
            images = [bench.image.rgb] * min(number, 3 * size)  # three batches show how they overlap
            call = _whole(bench, images, method, size)
            row["from_pictures"] = len(images) / time_of(call, bench.device, repeats=1, warm=1).seconds
        yield row


def _whole(bench: Bench, images: list[Image.Image], method: str, size: BatchSize) -> Callable[[], object]:
    return lambda: bench.explainer.explain_batch(
        images,
        PROMPT,
        method=method,
        max_new_tokens=bench.tokens,
        generation=bench._unending or None,
        batch_size=size,
    )


@torch.no_grad()
def prefill(bench: Bench, batch: int, method: str = "ercr", flops: float | None = None) -> Row:
    """Device time of all passes over pictures and prompts, and its ratio to the minimum time for their operations.

    Operations cannot be counted in compiled modules: `flops` then gives the count of the same eager passes.
    """
    sample, adapter = bench.sample(method), bench.adapter
    shown = [sample.prepared, *sample.views.values()]
    packs = [adapter.pack([one] * batch, pad_token(adapter)) for one in shown]

    def run() -> None:
        for pack in packs:
            adapter.read(adapter.decoder_inputs(pack))

    flops, seconds = flops or operations(run), device_time(run, bench.device)
    floor = flops / PEAK if bench.device.type == "cuda" else None
    return {"batch": batch, "tflops": flops / 1e12, "seconds": seconds, "over_floor": floor and seconds / floor}


def residual(bench: Bench, lengths: Sequence[int]) -> Iterator[Row]:
    """Time and memory of PCR alone (ranked lists to maps) by the number of text tokens."""
    from ercr.methods.ercr import ErcrSettings, recompose, residualise_context
    from ercr.trace import trace_samples

    settings = ErcrSettings(views=1)
    for length in lengths:
        ids = torch.randint(0, 200, (length,), generator=torch.Generator().manual_seed(0))
        sample = replace(bench.sample("cam"), answer=ids)
        trace = trace_samples(bench.adapter, [sample], Needs(), {})[0]
        rows = slice(0, len(trace.rows))
        with torch.no_grad():
            evidence = recompose(trace, rows, settings).maps
            cost = time_of(partial(residualise_context, trace, evidence, rows, settings), bench.device)
        yield {"tokens": length, "seconds": cost.seconds, "memory_gb": cost.memory_gb}


def streaming(bench: Bench, method: str = "ercr") -> dict[str, float]:
    """Seconds a token of the model's own generation, and of a stream with a map for every token."""
    first = replace_tokens(bench, 1)
    functions = {
        "generate": bench.generate(),
        "first token": first.generate(),
        "stream": _stream(bench, method),
        "first step": _stream(first, method),
    }
    seconds = {name: cost.seconds for name, cost in together(functions, bench.device, bench.repeats).items()}
    alone, with_maps = seconds["generate"] - seconds["first token"], seconds["stream"] - seconds["first step"]
    return {
        "generate": alone / (bench.tokens - 1),
        "stream": with_maps / (bench.tokens - 1),
        "ratio": with_maps / alone,
    }


def _stream(bench: Bench, method: str) -> Callable[[], object]:
    options: dict[str, Any] = {"max_new_tokens": bench.tokens, "generation": bench._unending or None}
    return lambda: list(bench.explainer.stream(bench.image, PROMPT, method=method, **options))


def replace_tokens(bench: Bench, tokens: int) -> Bench:
    return Bench(bench.explainer, bench.image.rgb, tokens, bench.repeats)
