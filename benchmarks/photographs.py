"""Photographs through models of published shapes, with TAM's public code as a row of the same run.

    python -m benchmarks.photographs --shape qwen2-vl-2b --pictures FOLDER --tam FOLDER --out photographs.json

`--tam` is a copy of https://github.com/xmed-lab/TAM, which is run as it is and not part of this project.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import json
import pstats
import statistics
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ercr.benchmark import public_tam
from ercr.benchmark.photographs import Photographs, drawn, growth, memory_level, photographs, rows, weights_seconds
from ercr.benchmark.rows import PROMPT
from ercr.benchmark.shapes import random_adapter
from ercr.explaining.explainer import Explainer
from ercr.models.base import Adapter
from ercr.models.chat import as_messages
from ercr.trace.compiled import Compiled

_EAGER = 12  # photographs that are explained one by one in the plain mode
_PUBLIC, _REENACTED = "TAM's public code", "TAM's public code, re-enacted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen2-vl-2b")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--tam", type=Path)
    parser.add_argument("--count", type=int, default=96)
    parser.add_argument("--new", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--turns", type=int, default=5, help="how often rows without batches are measured")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--memory", type=int, default=0, help="pictures over which the level of memory is measured")
    parser.add_argument("--bulk-only", action="store_true")
    parser.add_argument("--profile", type=Path, help="folder for what Python did in bulk runs")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    adapter = random_adapter(arguments.shape, device, torch.bfloat16 if device == "cuda" else torch.float32)
    explainer = Explainer.around(adapter, arguments.shape)
    document: dict[str, Any] = {"model": arguments.shape, "tokens": arguments.tokens, "rows": {}}

    def keep(name: str, row: Any) -> None:
        document["rows"][name] = row
        arguments.out.write_text(json.dumps(document, indent=1, default=str) + "\n")
        print(f"{name}: {json.dumps(row, default=str)[:300]}", flush=True)

    found = _pictures(arguments)
    bench = Photographs(explainer, found[: arguments.count], arguments.tokens)
    same = [bench.pictures[0].resize((640, 480)) for _ in range(arguments.count)]
    attempt(keep, "rows without batches", lambda: _alone(bench, arguments, keep))
    said: dict[str, list[str]] = {}
    for mode in arguments.modes.split(","):
        if mode == "compiled":
            adapter.compiled = Compiled(adapter)
            attempt(keep, "first picture, compiled", lambda: bench.one_by_one(found[:1]))
        new = found[-arguments.new :][: None if mode == "compiled" else _EAGER]
        for name, measure in rows(bench, mode, same, new, alone=not arguments.bulk_only):
            attempt(keep, name, measure)
        profile = arguments.profile and arguments.profile / f"profile-{mode}.txt"
        attempt(keep, f"answers, {mode}", lambda mode=mode, to=profile: said.update({mode: _said(bench, to)}))
    if len(said) > 1:
        keep("equal answers", sum(a == b for a, b in zip(*said.values(), strict=True)))
    if not arguments.bulk_only:
        read = weights_seconds(adapter)
        attempt(keep, "a token, compiled", lambda: {"seconds": bench.per_token(), "weights": read})
    if arguments.memory:
        attempt(keep, "memory", lambda: memory_level(bench, arguments.memory))
    if arguments.growth:
        attempt(keep, "growth", lambda: growth(bench, arguments.count))


def attempt(keep: Callable[[str, Any], None], name: str, measure: Callable[[], Any]) -> None:
    """Measure a row; one that fails is written as such, and the others go on."""
    try:
        row = measure()
    except Exception as error:
        traceback.print_exc()
        keep(f"failed: {name}", repr(error))
    else:
        if row is not None:
            keep(name, row)


def _said(bench: Photographs, profile: Path | None) -> list[str]:
    """The answers of a bulk run; what Python did meanwhile is written to a file, if one is named."""
    profiler = cProfile.Profile()
    if profile is not None:
        profiler.enable()
    found = bench.explainer.explain_batch(bench.pictures, PROMPT, progress=False, **bench.options)
    if profile is not None:
        profiler.disable()
        with profile.open("w") as file:
            for order in ("tottime", "cumulative"):
                pstats.Stats(profiler, stream=file).sort_stats(order).print_stats(40)
    return [one.text for one in found]


def _pictures(arguments: Any) -> list[Image.Image]:
    count = arguments.count + arguments.new
    return photographs(arguments.pictures, count) if arguments.pictures else drawn(count)


def _alone(bench: Photographs, arguments: Any, keep: Callable[[str, Any], None]) -> None:
    """The rows without batches: plain generation, ERCR and TAM's code, in turns."""
    image, adapter = bench.pictures[0], bench.adapter
    calls: dict[str, Callable[[], object]] = {"plain generate": bench.generate()}
    ready = bench.explainer.runs.ready(image, PROMPT, None, True, [_needs("ercr")])
    resolved, options = _resolved("ercr"), {"max_new_tokens": bench.tokens, "do_sample": False, "num_beams": 1}
    calls["ERCR, from tensors"] = lambda: bench.explainer.runs.explain([ready], [resolved], options)
    calls["ERCR, from a picture"] = lambda: bench.explainer.explain(image, PROMPT, **bench.options)
    calls[_REENACTED] = lambda: _reenacted(adapter, image, bench.tokens)
    if arguments.tam:
        public = Public(arguments.tam, bench)
        calls[_PUBLIC] = lambda: public(image)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(arguments.turns + 1):
        for name, call in calls.items():
            seconds, _ = bench._timed(call)
            if turn:
                taken[name].append(seconds)
    for name, seconds in taken.items():
        keep(name, {"seconds": statistics.median(seconds), "spread": [min(seconds), max(seconds)]})


def _resolved(method: str) -> Any:
    from ercr.methods import resolve

    return resolve(method)


def _needs(method: str) -> Any:
    chosen, settings = _resolved(method)
    return chosen.needs(settings)


def _reenacted(adapter: Adapter, image: Image.Image, tokens: int) -> object:
    return public_tam.explain(adapter, adapter.prepare(image, as_messages(PROMPT)), tokens)


class Public:
    """TAM's public code on a model of ours, as its demo calls it, without writing pictures."""

    def __init__(self, folder: Path, bench: Photographs) -> None:
        sys.path.insert(0, str(folder))
        sys.modules.setdefault("fitz", types.ModuleType("fitz"))  # it reads PDF files of LaTeX, which are not made here
        self._tam = importlib.import_module("tam").TAM
        self._bench, self._adapter = bench, bench.adapter
        self.tokenizer = bench.adapter.tokenizer

    def batch_decode(self, ids: Any, **options: Any) -> list[str]:
        return list(self.tokenizer.batch_decode([[int(i) for i in row] for row in ids], **options))

    def __call__(self, image: Image.Image) -> list[Any]:
        adapter, of = self._adapter, self.tokenizer.convert_tokens_to_ids
        prepared = adapter.prepare(image, as_messages(PROMPT))
        outputs = torch.no_grad()(adapter.model.generate)(
            **adapter.collate([prepared], 0),
            max_new_tokens=self._bench.tokens,
            do_sample=False,
            use_cache=True,
            output_hidden_states=True,
            return_dict_in_generate=True,
        )
        with torch.no_grad():
            logits = [adapter.head(states[-1]) for states in outputs.hidden_states]
        letters = self.tokenizer("assistant\n", add_special_tokens=False)["input_ids"]
        line = self.tokenizer("\n", add_special_tokens=False)["input_ids"]
        end = [of("<|im_end|>"), *line, of("<|im_start|>")]
        image_token = int(adapter.image_token_id)
        own = adapter.config.model_type == "qwen2_vl"
        special = {
            "img_id": [of("<|vision_start|>"), of("<|vision_end|>")] if own else [image_token],
            "prompt_id": [of("<|vision_end|>") if own else [image_token, *line], end],
            "answer_id": [letters, -1],
        }
        records: list[Any] = []
        tokens = outputs.sequences[0].cpu().tolist()
        return [
            self._tam(tokens, prepared.geometry.grid, logits, special, image, self, "", number, records, False)
            for number in range(len(logits))
        ]


if __name__ == "__main__":
    main()
