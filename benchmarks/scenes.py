"""Tables of methods on drawn scenes with exact masks, for the packaged models.

    python -m benchmarks.scenes methods  --model scenes-qwen2vl --out docs/tables/methods-scenes-qwen2vl.json
    python -m benchmarks.scenes ablation --model scenes-qwen2vl --out docs/tables/ablation-scenes-qwen2vl.json

Each writes JSON and, beside it, the same table as Markdown. The seeds were not used in training.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from rich.console import Console
from rich.progress import track

import ercr
from ercr.datasets import Scenes
from ercr.evaluate.schema import SCHEMA
from ercr.evaluate.scores import pool
from ercr.metrics.answers import AnswerScore, score_answer
from ercr.metrics.faithfulness import BUDGETS, changes, curves
from ercr.metrics.language import english
from ercr.metrics.pooled import Interval
from ercr.metrics.protocol import Protocol

FIRST_SEED = 900_000
PROTOCOL = Protocol.preset("clean")
ABLATION = {
    "baseline (CAM and filter)": "ercr:views=1,context=none",
    "mean subtraction": "ercr:views=1,context=mean",
    "TAM-style": "ercr:views=1,context=tam",
    "PCR": "ercr:views=1",
    "ER max": "ercr:aggregate=max,context=none",
    "ER mean": "ercr:context=none",
    "ER + PCR": "ercr",
    "ER + PCR, min-max": "ercr:normalize=minmax",
    "ER + mean subtraction, min-max": "ercr:context=mean,normalize=minmax",
}
# the small decoders have moved the nouns to the text before their last block, which these two read by default
EARLIER = {"grad_cam_pp, block 1": "grad_cam_pp:layer=1", "layer_cam, block 1": "layer_cam:layer=1"}
RANDOM = "random map"


TIMED = 5  # scenes on which every method runs alone, for its time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("methods", "ablation", "memory"))
    parser.add_argument("--model", default="scenes-qwen2vl")
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--faithfulness", type=int, default=40, help="scenes that are perturbed and scored again")
    parser.add_argument("--methods", help="specifications separated by spaces, instead of the table's own")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    explainer = ercr.Explainer.from_pretrained(arguments.model, dtype="float32")
    if torch.cuda.is_available():
        explainer.adapter.model.cuda()
    if arguments.table == "memory":
        print(json.dumps(extra_memory(explainer, arguments.methods)))
        return
    rows = (
        dict(ABLATION) if arguments.table == "ablation" else {name: name for name in ercr.methods.methods()} | EARLIER
    )
    if arguments.methods:
        rows = {spec: spec for spec in arguments.methods.split()}
    result = measure(explainer, rows, arguments)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
        arguments.out.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))


def measure(explainer: ercr.Explainer, rows: dict[str, str], arguments: Any) -> dict[str, Any]:
    """Scores of every row over the same scenes and the same answers."""
    language, dataset = english(), Scenes(arguments.scenes, FIRST_SEED)
    scored: list[dict[str, Any]] = []
    faith: dict[str, list[Any]] = {name: [] for name in (*rows, RANDOM)}
    seconds, tokens, relevance = dict.fromkeys(rows, 0.0), 0, []
    rng = np.random.default_rng(0)
    for index, sample in enumerate(track(dataset, "scenes", console=Console(file=sys.stderr))):
        options = {"answer": explainer.explain(sample.image, sample.prompt, method="cam", max_new_tokens=64).text}
        if not options["answer"]:
            continue
        explained = explainer.explain_all(sample.image, sample.prompt, methods=list(rows.values()), **options)
        found = {**dict(zip(rows, explained, strict=True)), RANDOM: _random(explained[0], rng)}
        if index < TIMED:
            tokens += len(explained[0].text_tokens)
            for name, method in rows.items():
                started = time.perf_counter()
                explainer.explain(sample.image, sample.prompt, method=method, **options)
                seconds[name] += time.perf_counter() - started
        answers = {}
        for name, explanation in found.items():
            answers[name] = score_answer(explanation, sample.labels, sample.categories, language, PROTOCOL)
            head = {"method": name, "sample": sample.id, "status": "ok"}
            scored += [{**head, **row} for row in answers[name].rows()]
        if arguments.table == "methods" and index < arguments.faithfulness:
            for name, changed in faithfulness(explainer, sample, found, answers).items():
                faith[name] += changed
        for explanation in explained:
            if explanation.relevance is not None:
                below = np.tril(np.ones_like(explanation.relevance, dtype=bool), -1)
                relevance += explanation.relevance[below].tolist()
    scores = pool(pa.Table.from_pylist(scored, SCHEMA))
    memory = memory_of(explainer.name, rows) if arguments.table == "methods" else {}
    return {
        "model": explainer.name,
        "scenes": arguments.scenes,
        "tagger": language.name,
        "rows": {
            name: {
                **_percents(scores[name].summary()),
                "seconds_per_token": round(seconds[name] / tokens, 5) if name in seconds else None,
                "extra_mib": memory.get(name),
                **_faith_summary(faith[name]),
            }
            for name in scores
        },
        "rank_relevance": _quantiles(relevance),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
    }


def faithfulness(
    explainer: ercr.Explainer, sample: Any, found: dict[str, Any], answers: dict[str, AnswerScore]
) -> dict[str, Any]:
    """Deletion and insertion of the first subword of every object word in the picture, all methods in one batch."""
    image = np.asarray(sample.image.convert("RGB"))
    jobs, maps = [], []
    for name, explanation in found.items():
        for word in answers[name].words:
            if word.overlap is not None:
                first = answers[name].tokens[word.tokens[0]]
                jobs.append((name, first.index))
                maps.append((explanation.geometry, explanation.maps[first.token.row]))
    if not jobs:
        return {}
    answer = next(iter(found.values())).text
    curve = curves(image, maps, lambda p: explainer.answer_log_probabilities(p, sample.prompt, answer), BUDGETS)
    results: dict[str, Any] = {name: [] for name in found}
    for (name, at), deleted, inserted in zip(jobs, curve.deleted, curve.inserted, strict=True):
        results[name].append(changes(curve.whole[at], curve.blank[at], deleted[:, at], inserted[:, at]))
    return results


def memory_of(model: str, rows: dict[str, str]) -> dict[str, float]:
    """Peak memory of each method beyond the loaded model, each in a process of its own (CPU only)."""
    if torch.cuda.is_available():
        return {}
    command = [sys.executable, "-m", "benchmarks.scenes", "memory", "--model", model, "--methods"]
    runs = {name: subprocess.run([*command, spec], capture_output=True, text=True) for name, spec in rows.items()}
    return {name: json.loads(run.stdout) for name, run in runs.items() if run.returncode == 0}


def extra_memory(explainer: ercr.Explainer, method: str) -> float:
    """MiB that explaining takes at its peak beyond the loaded model (Linux: the kernel's high-water mark, reset)."""
    sample = Scenes(1, FIRST_SEED)[0]
    answer = explainer.explain(sample.image, sample.prompt, method="cam", max_new_tokens=64).text
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    explainer.explain(sample.image, sample.prompt, method=method, answer=answer)
    return round((_kilobytes("VmHWM") - before) / 1024, 1)


def _kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def _random(explanation: Any, rng: Any) -> Any:
    return replace(explanation, maps=rng.random(explanation.maps.shape, dtype=np.float32), relevance=None)


def _percents(scores: dict[str, Interval]) -> dict[str, list[float]]:
    found = {name: scores[name] for name in ("obj_iou", "func_iou", "f1_iou")}
    return {name: [round(100 * v, 2) for v in (i.value, i.low, i.high)] for name, i in found.items()}


def _faith_summary(results: list[Any]) -> dict[str, Any]:
    if not results:
        return {}
    table = np.array(results).mean(0)
    return {"deletion": table[0].round(3).tolist(), "insertion": table[1].round(3).tolist(), "words": len(results)}


def _quantiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    return {f"q{q}": round(float(np.percentile(values, q)), 4) for q in (5, 25, 50, 75, 95, 99)}


def markdown(result: dict[str, Any]) -> str:
    """The table as Markdown; intervals in brackets."""
    faithful = any("deletion" in row for row in result["rows"].values())
    head = ["method", "Obj-IoU", "Func-IoU", "F1-IoU", "s / token"]
    head += ["extra MiB", "deletion 10/20/30 %", "insertion 10/20/30 %"] if faithful else []
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, row in result["rows"].items():
        cells = [f"{row[k][0]:.1f} ({row[k][1]:.1f}–{row[k][2]:.1f})" for k in ("obj_iou", "func_iou", "f1_iou")]
        cells.append("–" if row["seconds_per_token"] is None else f"{row['seconds_per_token']:.4f}")
        if faithful:
            cells.append("–" if row["extra_mib"] is None else f"{row['extra_mib']:.0f}")
            cells += [" / ".join(f"{v:.2f}" for v in row.get(k, [])) for k in ("deletion", "insertion")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
