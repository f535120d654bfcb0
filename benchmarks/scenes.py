"""Tables of methods on drawn scenes with exact masks, for the packaged models.

    python -m benchmarks.scenes methods  --model scenes-qwen2vl --out docs/tables/methods-scenes-qwen2vl.json
    python -m benchmarks.scenes ablation --model scenes-qwen2vl --out docs/tables/ablation-scenes-qwen2vl.json

Each writes JSON and, beside it, the same table as Markdown. Seeds start where training never went.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track

import ercr
from ercr.metrics.faithfulness import BUDGETS, changes, perturbed
from ercr.metrics.language import english
from ercr.metrics.plausibility import Plausibility, score_words

FIRST_SEED = 900_000
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
RANDOM = "random map"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("methods", "ablation"))
    parser.add_argument("--model", default="scenes-qwen2vl")
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--faithfulness", type=int, default=40, help="scenes that are perturbed and scored again")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    explainer = ercr.Explainer.from_pretrained(arguments.model, dtype="float32")
    if torch.cuda.is_available():
        explainer.adapter.model.cuda()
    rows = dict(ABLATION) if arguments.table == "ablation" else {name: name for name in ercr.methods.methods()}
    result = measure(explainer, rows, arguments)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(markdown(result))
    print(markdown(result))


def measure(explainer: ercr.Explainer, rows: dict[str, str], arguments: Any) -> dict[str, Any]:
    """Scores of every row over the same scenes and the same answers."""
    from ercr.datasets import Scenes

    language, dataset = english(), Scenes(arguments.scenes, FIRST_SEED)
    scores = {name: Plausibility() for name in (*rows, RANDOM)}
    faith: dict[str, list[Any]] = {name: [] for name in (*rows, RANDOM)}
    seconds = dict.fromkeys(rows, 0.0)
    tokens, relevance = 0, []
    rng = np.random.default_rng(0)
    for index, sample in enumerate(track(dataset, "scenes", console=_console())):
        answer = explainer.explain(sample.image, sample.prompt, method="cam", max_new_tokens=64)
        if not answer.words:
            continue
        tokens += len(answer.text_tokens)
        found = {}
        for name, method in rows.items():
            started = time.perf_counter()
            found[name] = explainer.explain(sample.image, sample.prompt, answer=answer.text, method=method)
            seconds[name] += time.perf_counter() - started
        found[RANDOM] = _random(next(iter(found.values())), rng)
        for name, explanation in found.items():
            words = score_words(explanation, sample.labels, sample.categories, language, match="exact")
            scores[name].add(sample.id, words)
            if arguments.table == "methods" and index < arguments.faithfulness:
                faith[name] += faithfulness(explainer, sample, explanation, words)
            if explanation.relevance is not None:
                below = np.tril(np.ones_like(explanation.relevance, dtype=bool), -1)
                relevance += explanation.relevance[below].tolist()
    return {
        "model": explainer.name,
        "scenes": arguments.scenes,
        "tagger": language.name,
        "rows": {
            name: {
                **{key: [round(v, 2) for v in figures] for key, figures in scores[name].summary().items()},
                "seconds_per_token": round(seconds[name] / tokens, 5) if name in seconds else None,
                **_faith_summary(faith[name]),
            }
            for name in scores
        },
        "rank_relevance": _quantiles(relevance),
        "device": "cuda" if torch.cuda.is_available() else "cpu",
    }


def faithfulness(explainer: ercr.Explainer, sample: Any, explanation: Any, words: Any) -> list[Any]:
    """Deletion and insertion of the first subword of every object word that is in the picture."""
    image = np.asarray(sample.image.convert("RGB"))
    results = []
    for word, score in zip(explanation.words, words, strict=True):
        if score.iou is None:
            continue
        heat = explanation.geometry.to_pixels(explanation.maps[word.tokens[0].row])
        deleted, inserted, baseline = perturbed(image, heat)
        logs = explainer.answer_log_probabilities(
            [image, baseline, *deleted, *inserted], sample.prompt, explanation.text
        )[:, [t.row for t in explanation.text_tokens if t.kind == "answer"].index(word.tokens[0].row)]
        results.append(changes(logs[0], logs[1], logs[2 : 2 + len(BUDGETS)], logs[2 + len(BUDGETS) :]))
    return results


def _random(explanation: Any, rng: Any) -> Any:
    from dataclasses import replace

    return replace(explanation, maps=rng.random(explanation.maps.shape, dtype=np.float32), relevance=None)


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
    faithful = any("deletion" in row for row in result["rows"].values())
    head = ["method", "Obj-IoU", "Func-IoU", "F1-IoU", "s / token"] + (
        ["deletion 10/20/30 %", "insertion 10/20/30 %"] if faithful else []
    )
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, row in result["rows"].items():
        cells = [f"{row[k][0]:.1f} ({row[k][1]:.1f}–{row[k][2]:.1f})" for k in ("obj_iou", "func_iou", "f1_iou")]
        cells.append("–" if row["seconds_per_token"] is None else f"{row['seconds_per_token']:.4f}")
        if faithful:
            cells += [" / ".join(f"{v:.2f}" for v in row.get(k, [])) for k in ("deletion", "insertion")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _console() -> Any:
    from rich.console import Console

    return Console(file=sys.stderr)


if __name__ == "__main__":
    main()
