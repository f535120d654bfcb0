"""Runs as `ercr evaluate` leaves them, with made-up numbers and no model: what reports are tested on."""

from __future__ import annotations

import random
from pathlib import Path

from ercr.evaluate import Run
from ercr.evaluate.settings import FORMAT
from ercr.metrics.protocol import Protocol

CURVE = [step / 20 for step in range(21)]
WORDS = [
    ("A", "function", None),
    ("dog", "noun", 18),
    ("on", "other", None),
    ("the", "function", None),
    ("sofa", "noun", 63),
]
# how good made-up methods are: IoU of object words, quietness of function words
QUALITY = {"cam": (0.22, 0.5), "tam": (0.28, 0.7), "ercr": (0.31, 0.92), "attention": (0.08, 0.93)}


def make_run(
    folder: Path,
    methods: list[str],
    model: str = "Qwen/Qwen2-VL-2B-Instruct",
    dataset: str = "coco:/data/coco",
    images: int = 12,
    protocol: str = "tam",
    budgets: list[float] | None = None,
    suppression: bool = False,
    failed: tuple[int, ...] = (),
    finished: bool = True,
    seed: int = 0,
    dtype: str | None = None,
) -> list[dict]:
    """Write a run and return its rows."""
    budgets = budgets or []
    rows = []
    for index in range(images):
        rng = random.Random(f"{seed} {index}")
        kept = [word for word in WORDS if rng.random() < 0.8]
        for method in methods:
            rows += _sample(index, method, kept, budgets, suppression, index in failed, rng)
    _write(folder, rows, methods, model, dataset, images, protocol, budgets, suppression, finished, dtype)
    return rows


def _sample(index, method, words, budgets, suppression, failed, rng):
    head = {"index": index, "sample": f"image-{index:05d}", "method": method}
    if failed:
        return [{**head, "status": "failed", "reason": "model: not enough memory, even for this sample alone"}]
    head |= {"status": "ok", "answer": " ".join(w for w, *_ in words), "rows": 8, "columns": 8}
    head |= {"rouge_l": 0.3 + index / 100, "meteor": 0.2}
    rows = [_token(head, at, word, method, budgets, suppression, rng) for at, word in enumerate(words)]
    return rows or [head]


def _token(head, at, word, method, budgets, suppression, rng):
    text, kind, category = word
    better, quiet = QUALITY.get(method.partition(":")[0], (0.2, 0.6))
    shift = 0.02 * (len(method) % 5) if ":" in method else 0.0
    row = {**head, "token": at, "word": at, "word_text": text, "kind": kind, "category": category}
    if category is not None and rng.random() < 0.9:
        iou = min(max(rng.gauss(better - shift, 0.08), 0), 1)
        row |= {"object_iou": iou, "object_precision": iou * 1.2, "object_recall": min(1, iou * 1.6)}
    if kind == "function":
        row["function_quiet"] = min(max(rng.gauss(quiet - shift, 0.1), 0), 1)
    if suppression:
        row |= _masses(category is not None, kind, rng)
    if budgets and category is not None:
        row |= _scores(better, budgets, rng)
    return row


def _masses(is_object, kind, rng):
    kept = 0.2 if is_object else 0.12
    found = {"mass": (20 + rng.random(), 20 * kept), "area": (9.0, 9.0 * kept / 2)}
    if is_object:
        found |= {"inside": (8.0, 3.0 + rng.random()), "outside": (12.0, 2.0)}
    return {f"{what}_{when}": pair[i] for what, pair in found.items() for i, when in enumerate(("before", "after"))}


def _scores(better, budgets, rng):
    whole, blank, speed = -0.2 - rng.random() / 5, -4.0 - rng.random(), 6 * better
    lost = [(1 - (1 - share) ** (1 + speed)) for share in budgets]
    return {
        "score_whole": whole,
        "score_blank": blank,
        "deleted": [whole + (blank - whole) * part for part in lost],
        "inserted": [blank + (whole - blank) * part for part in lost],
    }


def _write(folder, rows, methods, model, dataset, images, protocol, budgets, suppression, finished, dtype):
    settings = {
        "format": FORMAT,
        "model": {"name": model} | ({"dtype": dtype} if dtype else {}),
        "dataset": {"spec": dataset, "samples": images, "fingerprint": f"{dataset.partition(':')[0]}-{images}"},
        "methods": [{"spec": method} for method in methods],
        "protocol": Protocol.parse(protocol).to_dict(),
        "tagger": "nltk 3.9.1",
        "meteor": "nltk 3.9.1, WordNet 3.0",
        "answers": "generated",
        "faithfulness": "curve" if budgets else "off",
        "budgets": budgets,
        "suppression": suppression,
        "versions": {"ercr": "0.1.0", "torch": "2.13.0"},
    }
    run, part = Run(folder), range(images if finished else images // 2)
    with run.locked():
        run.claim(settings)
        run.write_part(0, part, [row for row in rows if row["index"] in part])
        if finished:
            run.finish([part])
