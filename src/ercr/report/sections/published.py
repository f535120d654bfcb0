"""The paper's own tables, for orientation when the models are not the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ercr.methods.specs import ABLATION, NAMES
from ercr.report import paper
from ercr.report.document import Column, Estimate, Row, Section, Table

_IOU = {"obj_iou": "Obj-IoU", "func_iou": "Func-IoU", "f1_iou": "F1-IoU"}
_DATASETS = {"coco_caption": "COCO Caption", "grandf": "GranDf", "openpsg": "OpenPSG"}


def published(sections: Iterable[str]) -> Section:
    """Tables of the paper for the sections that a report has."""
    makers = {
        "baselines": _baselines,
        "generalization": _generalization,
        "ablation": _ablation,
        "subword": _subword,
        "suppression": _suppression,
        "faithfulness": _faithfulness,
        "efficiency": _efficiency,
    }
    wanted = set(sections)
    tables = tuple(maker(paper.tables()) for key, maker in makers.items() if key in wanted)
    text = f"For orientation, as printed: {paper.CITATION}. Models and pictures differ: do not compare directly."
    return Section("paper", "The paper's tables", text, tables)


def _columns(groups: Mapping[str, str]) -> tuple[Column, ...]:
    return tuple(Column(f"{key} {m}", label, group) for key, group in groups.items() for m, label in _IOU.items())


def _cells(row: Mapping[str, Any]) -> dict[str, Estimate]:
    return {f"{group} {m}": Estimate(value) for group, scores in row.items() for m, value in scores.items()}


def _baselines(tables: dict[str, Any]) -> Table:
    families = dict(NAMES.values())
    rows = [
        Row((name,), _cells(row), ours=name == "ERCR", block=families.get(name, ""))
        for name, row in tables["baselines_qwen2vl_2b"].items()
    ]
    title = "Paper: methods on Qwen2-VL-2B"
    return Table("paper-baselines", title, ("Method",), _columns(_DATASETS), tuple(rows))


def _generalization(tables: dict[str, Any]) -> Table:
    rows = [
        Row((model, name), _cells(row), ours=name == "ERCR", block=model, peers=model)
        for model, methods in tables["generalization"].items()
        for name, row in methods.items()
    ]
    title = "Paper: models and methods"
    return Table("paper-generalization", title, ("Model", "Method"), _columns(_DATASETS), tuple(rows))


def _ablation(tables: dict[str, Any]) -> Table:
    rows = []
    for row in tables["ablation_coco"]:
        models = {key: value for key, value in row.items() if isinstance(value, dict)}
        name = ABLATION[row["er"], row["context"]][0]
        rows.append(Row((name,), _cells(models), ours=name == "ERCR"))
    title = "Paper: parts of ERCR on COCO Caption"
    return Table("paper-ablation", title, ("Variant",), _columns({m: m for m in models}), tuple(rows))


def _subword(tables: dict[str, Any]) -> Table:
    rows = [
        Row((model, name), _cells({"": row}), ours=name.startswith("ERCR"), block=model, peers=model)
        for model, named in tables["subword_coco"].items()
        for name, row in named.items()
    ]
    title = "Paper: rules for subwords on COCO Caption"
    return Table("paper-subword", title, ("Model", "Rule"), _columns({"": ""}), tuple(rows))


def _suppression(tables: dict[str, Any]) -> Table:
    names = {
        "n": "Tokens",
        "suppression": "Supp.",
        "area_reduction": "Area Red.",
        "inside_retention": "In Ret.",
        "outside_reduction": "Out Red.",
    }
    columns = tuple(Column(key, label, digits=0 if key == "n" else 2, better=None) for key, label in names.items())
    rows = [
        Row((group,), {key: Estimate(value) for key, value in row.items() if value is not None})
        for group, row in tables["pcr_behavior_coco"].items()
    ]
    return Table("paper-suppression", "Paper: suppression on COCO Caption", ("Group",), columns, tuple(rows))


def _faithfulness(tables: dict[str, Any]) -> Table:
    sides = {"deletion_drop": "Deletion", "insertion_gain": "Insertion"}
    columns = tuple(Column(f"{s} {b}", f"{b} %", name, 3) for s, name in sides.items() for b in ("10", "20", "30"))
    rows = [
        Row((model, name), _cells(row), ours=name == "ERCR", block=model, peers=model)
        for model, methods in tables["faithfulness_coco"].items()
        for name, row in methods.items()
    ]
    title = "Paper: deletion and insertion on COCO Caption"
    return Table("paper-faithfulness", title, ("Model", "Method"), columns, tuple(rows))


def _efficiency(tables: dict[str, Any]) -> Table:
    names = {
        "tflops": "TFLOPs",
        "memory_gb": "Memory, GB",
        "forwards": "Forward passes",
        "seconds_per_sample": "Seconds per sample",
        "overhead": "Overhead, ×",
    }
    columns = tuple(Column(k, label, digits=0 if k == "forwards" else 2, better=None) for k, label in names.items())
    rows = [
        Row((name,), {key: Estimate(value) for key, value in row.items()}, ours=name == "ERCR")
        for name, row in tables["efficiency_qwen2vl_2b_a100"].items()
    ]
    return Table("paper-efficiency", "Paper: cost on Qwen2-VL-2B, one A100", ("Method",), columns, tuple(rows))
