"""A whole benchmark as one document: the efficiency table, throughput, streaming and growth, all from one run."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ercr.benchmark.measure import time_of, together
from ercr.benchmark.photographs import Photographs, drawn, memory_level, photographs
from ercr.benchmark.photographs import growth as photographs_growth
from ercr.benchmark.photographs import rows as photograph_rows
from ercr.benchmark.rows import (
    PUBLIC,
    STATIC,
    TABLE,
    Bench,
    Document,
    Row,
    allowing,
    bulk,
    compiled,
    picture,
    prefill,
    residual,
    streaming,
    table,
)
from ercr.explaining.explainer import Explainer
from ercr.explanation import Explanation
from ercr.version import __version__

Say = Callable[[str], object]
Found = dict[str, list[Row]]
Keep = Callable[[Document], object]
_GROWTH = {
    "answer": (16, 64, 256, 1024),
    "image": (256, 576, 1024, 2304, 4096),
    "views": (1, 2, 3, 4, 6, 8),
    "residual": (16, 64, 256, 1024),
}
_LONG = 256  # tokens of an answer that is too long to generate alone


@dataclass(frozen=True)
class Wanted:
    """What to measure, and on what."""

    methods: Sequence[str] = ("cam", "tam")
    tokens: int = 16
    grid: tuple[int, int] = (17, 23)
    cell: int = 28  # pixels of a picture per token of the grid
    repeats: int = 5
    batches: Sequence[int] = (1, 8)
    images: int = 32  # of the runs from pictures to explanations
    captured: bool = False  # also measure with CUDA graphs
    growth: bool = False
    pictures: Path | None = None  # folder of photographs; without it, drawn in sizes as frequent as in COCO
    photographs: int = 32  # how many are explained together
    one_by_one: int = 4  # how many are explained alone, each of a size of its own
    memory: int = 0  # pictures over which the level of memory is measured


def benchmark(
    explainer: Explainer, wanted: Wanted, say: Say = lambda text: None, keep: Keep = lambda document: None
) -> Document:
    """All measurements of one model in one process; CUDA graphs come last, because they change the model.

    `say` is called with the next step, `keep` with the results so far.
    """
    bench = Bench(explainer, picture(wanted.grid, wanted.cell), wanted.tokens, wanted.repeats)
    document = _head(bench, wanted)

    def step(text: str) -> None:
        keep(document)
        say(text)

    _measure(document, bench, wanted, step)
    return document


def _measure(document: Document, bench: Bench, wanted: Wanted, say: Say) -> None:
    say("rows")
    rows = table(bench, wanted.methods)
    document["rows"] = [_entry(name, row) for name, row in rows.items()]
    shown = _shown(bench, wanted)
    document["photographs"] = []
    _photographs(document, shown, wanted, "eager", say)
    say("streaming")
    document["streaming"] = streaming(bench)
    say("prefill")
    document["prefill"] = [{"mode": "eager", **prefill(bench, max(wanted.batches))}]
    document["bulk"] = []
    _bulk(document, bench, wanted, "eager", say)
    if wanted.growth:
        document["growth"] = {}
        growth(document["growth"], bench, wanted, say)
        if not wanted.captured:
            answers(document["growth"], bench, say)
    if wanted.captured:
        _captured(document, bench, wanted, say)
        _photographs(document, shown, wanted, "compiled", say)
    if wanted.growth:
        say("growth: sizes, batches and answers of photographs")
        document["photographs_growth"] = photographs_growth(shown, wanted.photographs)
    if wanted.memory:
        say("memory over many pictures")
        document["memory"] = memory_level(shown, wanted.memory)


def _shown(bench: Bench, wanted: Wanted) -> Photographs:
    count = wanted.photographs + wanted.one_by_one
    found = drawn(count) if wanted.pictures is None else photographs(wanted.pictures, count)
    return Photographs(bench.explainer, found, wanted.tokens)


def _photographs(document: Document, shown: Photographs, wanted: Wanted, mode: str, say: Say) -> None:
    """Rows of photographs, from pictures in memory on; they are compared with the public code from tensors on."""
    baseline = next(row["seconds"] for row in document["rows"] if row["name"] == PUBLIC)
    own = Photographs(shown.explainer, shown.pictures[: wanted.photographs], shown.tokens)
    same = [own.pictures[0]] * wanted.photographs
    say(f"photographs, {mode}")
    for name, measure in photograph_rows(own, mode, same, shown.pictures[wanted.photographs :]):
        row = measure()
        document["photographs"].append({"name": name, "mode": mode, **row, "over_public": baseline / row["seconds"]})


def _head(bench: Bench, wanted: Wanted) -> Document:
    import transformers

    prepared = bench.sample("ercr").prepared
    cuda = bench.device.type == "cuda"
    return {
        "format": 1,
        "model": bench.explainer.name,
        "device": torch.cuda.get_device_name(bench.device) if cuda else f"CPU, {torch.get_num_threads()} threads",
        "dtype": str(bench.adapter.model.dtype).removeprefix("torch."),
        "grid": list(prepared.geometry.grid),
        "prompt_tokens": len(prepared.input_ids),
        "new_tokens": wanted.tokens,
        "repeats": wanted.repeats,
        "versions": {
            "ercr": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }


def _entry(name: str, row: Row) -> Row:
    method = {**TABLE, "CAM, compiled": None, "ERCR, compiled": None}.get(name, name)
    known = {} if method is None or name.startswith(("TAM, public", "plain")) else {"method": method}
    return {"name": name, **known, **row}


def _bulk(document: Document, bench: Bench, wanted: Wanted, mode: str, say: Say) -> None:
    say(f"bulk, {mode}")
    baseline = next(row["seconds"] for row in document["rows"] if row["name"] == PUBLIC)
    for row in bulk(bench, wanted.batches, wanted.images):
        speed = max(row["images_per_second"], row.get("from_pictures", 0.0))
        document["bulk"].append({"mode": mode, **row, "over_public": speed * baseline})


def _captured(document: Document, bench: Bench, wanted: Wanted, say: Say) -> None:
    from ercr.trace.compiled import Compiled

    say("generation with a static cache")
    baseline = next(row for row in document["rows"] if row["name"] == PUBLIC)
    plain = together({STATIC: bench.generate(cache_implementation="static")}, bench.device, wanted.repeats)[STATIC]
    say("captured passes")
    said = [token.id for token in _first(bench).text_tokens]
    bench.adapter.compiled = Compiled(bench.adapter)
    for name, row in compiled(bench, plain, baseline["seconds"]).items():
        document["rows"].append(_entry(name, row))
    document["same_tokens"] = said == [token.id for token in _first(bench).text_tokens]
    flops = document["prefill"][0]["tflops"] * 1e12
    document["prefill"].append({"mode": "captured", **prefill(bench, max(wanted.batches), flops=flops)})
    _bulk(document, bench, wanted, "captured", say)
    if wanted.growth:
        answers(document["growth"], bench, say)


def _first(bench: Bench) -> Explanation:
    return bench.explain("ercr")()[0][0]


def answers(found: Found, bench: Bench, say: Say) -> None:
    """Seconds and peak memory of ERCR by the length of the answer.

    Plain generation of long answers would take minutes and is not measured. With CUDA graphs it is never measured:
    parts of the model are compiled then, and `generate` would run in neither mode.
    """
    captured = bench.adapter.compiled is not None
    for tokens in _GROWTH["answer"]:
        say(f"growth: answers of {tokens} tokens")
        longer = Bench(bench.explainer, bench.image.rgb, tokens, 2)
        _add(found, "answer", tokens, longer, "ercr", alone=tokens < _LONG and not captured)


def growth(found: Found, bench: Bench, wanted: Wanted, say: Say) -> None:
    """Seconds and peak memory of ERCR by the size of the picture and the number of views, and of PCR alone."""
    for cells in _GROWTH["image"]:
        say(f"growth: pictures of {cells} tokens")
        side = round(cells**0.5)
        large = picture((side, side), wanted.cell)
        with allowing(bench.adapter, large):
            larger = Bench(bench.explainer, large, wanted.tokens, 2)
            shown = larger.sample("cam").prepared.geometry.tokens  # a model may fix the size of its pictures
            if all(row["image"] != shown for row in found.get("image", [])):
                _add(found, "image", shown, larger, "ercr")
    for views in _GROWTH["views"]:
        say(f"growth: {views} views")
        _add(found, "views", views, bench, f"ercr:views={views}")
    say("growth: the residual alone")
    found["residual"] = list(residual(bench, _GROWTH["residual"]))


def _add(found: Found, kind: str, number: int, bench: Bench, method: str, alone: bool = True) -> None:
    functions = {"ercr": bench.explain(method)} | ({"generate": bench.generate()} if alone else {})
    captured = bench.adapter.compiled is not None
    warm = 2 if captured else 1  # the second run of a shape is the one that captures
    costs = {name: time_of(function, bench.device, repeats=2, warm=warm) for name, function in functions.items()}
    row: Row = {kind: number, "mode": "captured" if captured else "eager"}
    row["grid"] = list(bench.sample("cam").prepared.geometry.grid)
    for name, cost in costs.items():
        row |= {f"{name}_seconds": cost.seconds, f"{name}_memory_gb": cost.memory_gb}
    found.setdefault(kind, []).append(row)
