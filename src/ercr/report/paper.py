"""The paper's own numbers, by model, dataset and method. They are shown beside ours and never mixed with them."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from ercr.methods.specs import Spec

CITATION = (
    "Liang et al., Evidence Recomposition and Predictive Context Residualization for Visual Attribution in "
    "Multimodal Large Language Models, 2026"
)
MAIN = "Qwen2-VL-2B"  # the model of the tables of baselines and of cost
DATASETS = {"coco": "coco_caption", "grandf": "grandf", "openpsg": "openpsg"}
Published = dict[str, float]
_ENDINGS = re.compile(r"(instruct|chat|hf)+$")


@lru_cache(maxsize=1)
def tables() -> dict[str, Any]:
    """All seven tables, as written in `paper.json`."""
    content: dict[str, Any] = json.loads((files("ercr.report") / "paper.json").read_text(encoding="utf-8"))
    return content


def models() -> list[str]:
    return list(tables()["generalization"])


def find_model(name: str) -> str | None:
    """The paper's name of a hub id or a folder: `llava-hf/llava-1.5-7b-hf` is LLaVA1.5-7B; None for other models.

    The folder of a snapshot in the hub's cache lies two levels below the folder with the model's name.
    """
    parts = PurePath(name.replace("\\", "/")).parts
    if len(parts) >= 3 and parts[-2] == "snapshots":
        parts = (parts[-3].rpartition("--")[2],)
    known = {_plain(model): model for model in models()}
    return known.get(_plain(parts[-1])) if parts else None


def _plain(name: str) -> str:
    """Letters and digits only, without the endings that publishers add."""
    letters = _ENDINGS.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))
    return letters.replace("llavav15", "llava15")


def find_dataset(spec: str) -> str | None:
    """The paper's key for `coco:FOLDER` and similar datasets."""
    return DATASETS.get(spec.partition(":")[0])


def plausibility(model: str, dataset: str, spec: Spec, subword: str = "max") -> Published | None:
    """Obj-, Func- and F1-IoU of a method, from whichever of the paper's tables has it."""
    known, data = find_model(model), find_dataset(dataset)
    if known is None or data is None:
        return None
    if subword != "max":
        rule = {"mean": "avg", "first": "first"}.get(subword)
        rows = tables()["subword_coco"].get(known, {}) if data == "coco_caption" else {}
        return _row(rows.get(f"{spec.published} {rule}-subword"))
    if spec.published is not None:
        rows = tables()["generalization"][known]
        if known == MAIN:
            rows = {**tables()["baselines_qwen2vl_2b"], **rows}
        if spec.published in rows:
            return _row(rows[spec.published].get(data))
    return ablation(model, dataset, spec)


def ablation(model: str, dataset: str, spec: Spec) -> Published | None:
    """The row of the ablation table."""
    known = find_model(model)
    if known is None or spec.row is None or find_dataset(dataset) != "coco_caption":
        return None
    found = (row for row in tables()["ablation_coco"] if (row["er"], row["context"]) == spec.row)
    return next((_row(row.get(known)) for row in found), None)


def suppression(model: str, dataset: str, group: str) -> Published | None:
    """The row of a group of tokens (object, function, other).

    The paper does not name the model of this table; its main model is assumed.
    """
    if find_model(model) != MAIN or find_dataset(dataset) != "coco_caption":
        return None
    row = tables()["pcr_behavior_coco"].get(f"{group.capitalize()} tokens")
    return {key: value for key, value in row.items() if value is not None} if row else None


def faithfulness(model: str, dataset: str, spec: Spec) -> Published | None:
    """Deletion and insertion as `deletion_10`, `insertion_10`, …"""
    known = find_model(model)
    if known is None or find_dataset(dataset) != "coco_caption":
        return None
    row = tables()["faithfulness_coco"].get(known, {}).get(spec.published)
    if row is None:
        return None
    names = {"deletion": row["deletion_drop"], "insertion": row["insertion_gain"]}
    return {f"{name}_{budget}": value for name, values in names.items() for budget, value in values.items()}


def efficiency(model: str, name: str) -> Published | None:
    """Cost of TAM, PCR only, ER only or ERCR on one A100; ours may be measured on another machine."""
    if find_model(model) != MAIN:
        return None
    known = {"TAM, public code": "TAM"}
    return _row(tables()["efficiency_qwen2vl_2b_a100"].get(known.get(name, name)))


def _row(row: Any) -> Published | None:
    return dict(row) if row else None
