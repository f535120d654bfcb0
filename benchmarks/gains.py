"""One method against all others over the same pictures: differences with paired 95 % intervals, from finished runs.

python -m benchmarks.gains RUN [RUN ...] --method contrast --out docs/tables/contrast-gains.json

Runs of one model on one dataset and kind of answers are taken together, whichever methods each of them has.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from ercr.metrics.pooled import Pooled, compare_all
from ercr.report.runs import Evaluated, read_run

_SCORES = ("obj_iou", "func_iou", "f1_iou", "deletion_10", "deletion_20", "deletion_30", "deletion_auc")
SCORES = (*_SCORES, *(name.replace("deletion", "insertion") for name in _SCORES if name.startswith("deletion")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--method", default="contrast")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    groups: dict[str, list[Evaluated]] = {}
    for folder in arguments.runs:
        run = read_run(folder)
        groups.setdefault(title(run), []).append(run)
    document = {
        "method": arguments.method,
        "groups": [group(name, runs, arguments.method) for name, runs in groups.items()],
    }
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    text = markdown(document)
    arguments.out.with_suffix(".md").write_text(text)
    print(text)


def title(run: Evaluated) -> str:
    """What was explained, without places on this machine and without the range of seeds."""
    spec = run.spec
    kind = spec.partition(":")[0]
    if kind == "scenes":
        style = re.search(r"style=(.*)", spec)
        kind = f"scenes, style {Path(style[1]).name}" if style else "scenes"
    answers = "" if run.settings.get("answers") == "generated" else ", references"
    return f"{run.name}, {kind}{answers}"


def group(name: str, runs: list[Evaluated], method: str) -> dict[str, Any]:
    """Figures of every method, and the chosen one's lead over each, over the pictures that both have."""
    pooled: dict[str, Pooled] = {}
    for run in runs:
        for spec, scores in run.scores.items():
            before = pooled.setdefault(spec, Pooled())
            pooled[spec] = before.merge(scores.words).merge(scores.faithfulness)
    if method not in pooled:
        raise SystemExit(f"None of the runs of {name} has the method {method}.")
    ours = pooled[method]
    return {
        "name": name,
        "runs": [
            {"dataset": _without_folder(run.spec), "pictures": run.images, "methods": list(run.scores)} for run in runs
        ],
        "figures": {spec: _figures(own) for spec, own in pooled.items()},
        "lead": {spec: _lead(ours, other) for spec, other in pooled.items() if spec != method},
    }


def _without_folder(spec: str) -> str:
    """A dataset without the folders that its name may hold."""
    return re.sub(r"[^:=,]*/([^/,]+)", r"\1", spec)


def _figures(pooled: Pooled) -> dict[str, Any]:
    found = pooled.summary()
    return {
        name: {"value": one.value, "low": one.low, "high": one.high, "pictures": one.n}
        for name in SCORES
        if (one := found.get(name)) is not None
    }


def _lead(ours: Pooled, other: Pooled) -> dict[str, Any]:
    common = ours.images.keys() & other.images.keys()
    kept = [Pooled({image: own.images[image] for image in common}) for own in (ours, other)]
    names = [name for name in SCORES if all(name in own.names for own in kept)]
    return {
        name: {"difference": one.difference, "low": one.low, "high": one.high, "p": one.p, "pictures": one.n}
        for name, one in (compare_all(*kept, names) if common and names else {}).items()
    }


def markdown(document: dict[str, Any]) -> str:
    """F1-IoU of every method and the lead over it; deletion and insertion where they were measured."""
    lines = []
    for found in document["groups"]:
        lines += [
            f"### {found['name']}",
            "",
            f"| | pictures | F1-IoU | {document['method']} ahead by |",
            "|---|---|---|---|",
        ]
        lines += [_row(spec, own, found["lead"].get(spec)) for spec, own in found["figures"].items() if "f1_iou" in own]
        leads = {spec: lead for spec, lead in found["lead"].items() if any(n.startswith("del") for n in lead)}
        for spec, lead in leads.items():
            changes = [f"{n.replace('_', ' ')} {_signed(lead[n], 1)}" for n in lead if n.startswith(("del", "ins"))]
            lines += ["", f"Against {spec}: " + "; ".join(changes)]
        lines.append("")
    return "\n".join(lines)


def _row(spec: str, own: dict[str, Any], lead: dict[str, Any] | None) -> str:
    f1 = own["f1_iou"]
    ahead = "–" if not lead or "f1_iou" not in lead else _signed(lead["f1_iou"])
    pictures = lead["f1_iou"]["pictures"] if lead and "f1_iou" in lead else f1["pictures"]
    return f"| {spec} | {pictures} | {100 * f1['value']:.1f} | {ahead} |"


def _signed(one: dict[str, float], scale: float = 100) -> str:
    value, low, high = (scale * one[key] for key in ("difference", "low", "high"))
    return (
        f"{value:+.{2 if scale == 1 else 1}f} ({low:+.{2 if scale == 1 else 1}f} to {high:+.{2 if scale == 1 else 1}f})"
    )


if __name__ == "__main__":
    main()
