"""Measures the model for photographs: captions of Flickr8k's test split, and evidence against COCO's human masks.

    python -m training.photo.measure --model photo-mini --flickr PACKED --coco FOLDER --out WORK

Captions are greedy. CIDEr is pycocoevalcap's, on words as its own tokenizer splits them where Java is installed, and
on lower-case words without punctuation elsewhere; the result says which. The evidence is scored by `ercr evaluate` on
the first reference caption of each photograph (teacher-forced) and on the model's own caption. Intervals are
bootstrap 95 % intervals over photographs. Everything is written to WORK/figures.json.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import ercr
from ercr.datasets.coco import Coco
from ercr.evaluate import Run, evaluate
from ercr.evaluate.scores import pool
from ercr.metrics.language import english
from ercr.metrics.pooled import Pooled, compare

from .data import read
from .prompts import CAPTION
from .words import PEOPLE

TAM, ERCR = "tam:compat=true", "ercr"
_PERSON = 1  # COCO's category of people, who have many names
_NOWHERE = frozenset("front background top side middle back end line way".split())  # nouns of place, not of things
_RESAMPLES = 2000


def cider(said: list[str], references: list[list[str]]) -> dict[str, Any]:
    from pycocoevalcap.cider.cider import Cider

    theirs = {i: [{"caption": text} for text in group] for i, group in enumerate(references)}
    ours = {i: [{"caption": text}] for i, text in enumerate(said)}
    if shutil.which("java"):
        from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

        split, how = PTBTokenizer().tokenize, "pycocoevalcap, its own tokenizer"
    else:
        split, how = _plain_words, "pycocoevalcap, lower-case words without punctuation"
    score, each = Cider().compute_score(split(theirs), split(ours))
    drawn = np.random.default_rng(0).integers(0, len(each), (_RESAMPLES, len(each)))
    low, high = np.percentile(each[drawn].mean(1), [2.5, 97.5])
    return {"value": 100 * score, "low": 100 * low, "high": 100 * high, "captions": len(said), "how": how}


def _plain_words(groups: dict[int, list[dict[str, str]]]) -> dict[int, list[str]]:
    return {i: [" ".join(re.findall("[a-z0-9]+", e["caption"].lower())) for e in group] for i, group in groups.items()}


def flickr(explainer: ercr.Explainer, folder: Path, most: int | None) -> dict[str, Any]:
    """CIDEr of greedy captions of the test split."""
    split = read(folder, "test", most)
    pictures = [Image.fromarray(picture.permute(1, 2, 0).numpy()) for picture in split.pictures]
    told = explainer.explain_batch(pictures, CAPTION, method="cam", max_new_tokens=30)
    return cider([one.text for one in told], split.captions)


def inside_and_outside(run: Run, coco: Coco) -> Iterator[tuple[str, float, float]]:
    """Mean of CAM's map over an object word's human mask and over the rest, for its token with the best overlap."""
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for row in run.table().to_pylist():
        if row["method"] == "cam" and row["iou"] is not None:
            key = (row["sample"], row["word"])
            if key not in best or row["iou"] > best[key]["iou"]:
                best[key] = row
    labels: dict[str, NDArray[Any]] = {}
    for (sample, _), row in best.items():
        if sample not in labels:
            labels[sample] = np.asarray(coco.sample(coco.ids.index(int(sample))).labels)
        mask = labels[sample] == row["category"]
        grid = np.frombuffer(row["map"], np.uint8).reshape(row["rows"], row["columns"]).astype(np.float32)
        shown = np.asarray(Image.fromarray(grid).resize(mask.shape[::-1], Image.Resampling.BILINEAR))
        if mask.any() and not mask.all():
            yield sample, float(shown[mask].mean()), float(shown[~mask].mean())


def density(run: Run, coco: Coco) -> dict[str, Any]:
    pooled = Pooled()
    for sample, inside, outside in inside_and_outside(run, coco):
        pooled.add(sample, {"density": (inside, outside)})
    return vars(pooled.summary()["density"])


def own_nouns(run: Run, coco: Coco) -> dict[str, Any]:
    """Share of the nouns of own captions whose object has a mask, or which a reference caption has.

    A name for people counts as there where a person has a mask; nouns of place ("in front of") are left out.
    """
    language, pooled = english(), Pooled()
    seen: set[tuple[str, int]] = set()
    for row in run.table().to_pylist():
        key = (row["sample"], row["word"])
        word = str(row["word_text"] or "").strip().lower()
        if row["method"] != ERCR or row["kind"] != "noun" or key in seen or word in _NOWHERE:
            continue
        seen.add(key)
        sample = coco.sample(coco.ids.index(int(row["sample"])))
        category = _PERSON if word in PEOPLE else row["category"]
        masked = category is not None and bool((np.asarray(sample.labels) == category).any())
        told = {language.stem(other) for text in sample.references for other in re.findall("[a-z]+", text.lower())}
        there = masked or language.stem(word) in told
        pooled.add(row["sample"], {"there": (float(there), 1.0)})
    return vars(pooled.summary()["there"])


def over_tam(run: Run) -> dict[str, float]:
    """ERCR's F1-IoU over TAM's, with a paired bootstrap over photographs."""
    pooled = pool(run.table())
    ours, theirs = pooled[ERCR], pooled[TAM]
    images = sorted(set(ours.images) & set(theirs.images))
    parts = [_sums(one, images) for one in (ours, theirs)]
    drawn = np.random.default_rng(0).integers(0, len(images), (_RESAMPLES, len(images)))
    ratios = _f1(parts[0][drawn].sum(1)) / _f1(parts[1][drawn].sum(1))
    low, high = np.percentile(ratios, [2.5, 97.5])
    value = float(_f1(parts[0].sum(0)[None])[0] / _f1(parts[1].sum(0)[None])[0])
    return {"value": value, "low": float(low), "high": float(high), "p": compare(ours, theirs, "f1_iou").p}


def _sums(pooled: Pooled, images: list[str]) -> NDArray[np.float64]:
    empty = (0.0, 0.0)
    rows = [(pooled.images[i].get("obj_iou", empty), pooled.images[i].get("func_iou", empty)) for i in images]
    return np.asarray(rows)  # [images, 2 figures, numerator and denominator]


def _f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    obj, func = (sums[:, i, 0] / sums[:, i, 1] for i in (0, 1))
    return np.asarray(2 * obj * func / (obj + func))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="photo-mini")
    parser.add_argument("--flickr", type=Path, required=True, help="folder that `python -m training.photo pack` wrote")
    parser.add_argument("--coco", required=True, help="folder with annotations, image and seg_label")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, help="photographs to use, for a trial")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    explainer = ercr.Explainer.from_pretrained(options.model, device_map=options.device)
    coco = Coco(options.coco)
    dataset = f"coco:{options.coco}"
    runs = {
        answers: evaluate(
            explainer, dataset, ["cam", TAM, ERCR], options.out / answers,
            answers=answers, limit=options.most, maps=True, max_new_tokens=30,
        )
        for answers in ("references", "generated")
    }  # fmt: skip
    figures: dict[str, Any] = {answers: run.scores() for answers, run in runs.items()}
    figures["cam_density"] = density(runs["references"], coco)
    figures["own_nouns_there"] = own_nouns(runs["generated"], coco)
    figures["ercr_over_tam"] = {answers: over_tam(run) for answers, run in runs.items()}
    figures["cider"] = flickr(explainer, options.flickr, options.most)
    (options.out / "figures.json").write_text(json.dumps(figures, indent=1, default=float))
    print(json.dumps({k: v for k, v in figures.items() if k not in runs}, indent=1, default=float))


if __name__ == "__main__":
    main()
