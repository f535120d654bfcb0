"""The report of some runs: every table they have data for, and the commands that measure the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from ercr.errors import InputError, nearest
from ercr.report.cells import Cells
from ercr.report.document import Missing, Plot, Report, Section, Table
from ercr.report.runs import Evaluated, read_runs
from ercr.report.sections import (
    components,
    efficiency,
    faithfulness,
    grounding,
    places,
    plausibility,
    published,
    suppression,
)
from ercr.version import __version__

# every table that can be reproduced, and the question it answers
TABLES = {
    "baselines": "Methods against each other on one model",
    "generalization": "CAM, TAM and ERCR over several models and datasets",
    "ablation": "What evidence recomposition and context residualization contribute",
    "subword": "Other rules for words of several tokens",
    "suppression": "What the context residual removes, by kind of word",
    "faithfulness": "Deletion and insertion",
    "efficiency": "Operations, memory, passes and time",
    "views": "F1-IoU by the number of views",
    "scales": "F1-IoU by the range of scales",
}
_REASONS = 10  # most frequent reasons of failure that are listed


def build(
    folders: Sequence[str | Path],
    reference: str | None = None,
    with_paper: bool = False,
    only: Collection[str] | None = None,
) -> Report:
    """Read the runs and make every table they have data for, or only the tables in `only`."""
    benchmarks = [efficiency.read_benchmark(path) for folder in folders if (path := _benchmark(folder)) is not None]
    judged = [grounding.read_judged(folder) for folder in dict.fromkeys(folders) if grounding.is_grounding(folder)]
    evaluated = [folder for folder in folders if not _only_benchmark(folder) and not grounding.is_grounding(folder)]
    runs = read_runs(evaluated) if evaluated or not (benchmarks or judged) else []
    _check_reference(runs, reference)
    by_rule: dict[str, list[Evaluated]] = {}
    for run in runs:
        by_rule.setdefault(run.protocol.subword, []).append(run)
    usual = by_rule.get("max") or next(iter(by_rule.values()), [])
    cells = Cells.of(usual)
    found = [
        plausibility.baselines(cells, reference),
        plausibility.generalization(cells, reference),
        components.ablation(cells, reference),
        plausibility.subword({rule: Cells.of(some) for rule, some in by_rule.items()}, reference),
        suppression.suppression(Cells.of(usual, "suppression")),
        faithfulness.faithfulness(Cells.of(usual, "faithfulness"), reference),
        places.places(Cells.of(usual, "places"), reference),
        efficiency.efficiency(benchmarks),
        grounding.grounding(judged),
        components.views(cells),
        components.scales(cells),
        plausibility.answers(runs),
    ]
    sections = _chosen([section for section in found if section is not None], only)
    if with_paper:
        sections.append(published.published({section.key for section in sections}))
    return Report(
        (*(_summary(run) for run in runs), *(run.summary() for run in judged)),
        tuple(_distinct(sections)),
        tuple(_missing(sections, runs, benchmarks, only)) if runs or benchmarks else (),
        tuple(_warnings(runs)),
        __version__,
    )


def _benchmark(folder: str | Path) -> Path | None:
    path = Path(folder)
    path = path if path.name == efficiency.FILE else path / efficiency.FILE
    return path if path.is_file() else None


def _only_benchmark(folder: str | Path) -> bool:
    return _benchmark(folder) is not None and not (Path(folder) / "settings.json").exists()


def _check_reference(runs: Sequence[Evaluated], reference: str | None) -> None:
    known = list(dict.fromkeys(spec for run in runs for spec in run.scores))
    if reference is not None and reference not in known:
        raise InputError(
            f"No run has the method {reference!r}; there are {', '.join(known)}.{nearest(reference, known)}"
        )


def _summary(run: Evaluated) -> dict[str, Any]:
    """The facts about a run for the head of the report."""
    most = sorted(run.reasons.items(), key=lambda item: (-len(item[1]), item[0]))[:_REASONS]
    return {
        "path": str(run.path),
        "title": run.model,
        "finished": run.finished,
        "model": run.name,
        "dataset": run.spec,
        "samples": run.samples,
        "images": run.images,
        "failed": run.count("failed"),
        "left_out": run.count("left_out"),
        "protocol": str(run.protocol),
        "tagger": run.settings.get("tagger"),
        "answers": run.settings.get("answers"),
        "methods": list(run.scores),
        "versions": run.settings.get("versions", {}),
        "reasons": {reason: len(images) for reason, images in most},
    }


def _warnings(runs: Sequence[Evaluated]) -> list[str]:
    found = [
        f"{run.path} is not finished: {run.images:,} of {run.samples:,} images. Run the same `ercr evaluate` again to "
        "continue."
        for run in runs
        if not run.finished
    ]
    taggers = dict.fromkeys(str(run.settings.get("tagger")) for run in runs)
    if len(taggers) > 1:
        found.append(f"The runs used different taggers ({', '.join(taggers)}), so their words may not be the same.")
    for one, other in combinations(runs, 2):
        changed = _changes(one, other) if (one.model, one.dataset) == (other.model, other.dataset) else []
        if changed:
            found.append(f"{one.path} and {other.path} were run differently: {'; '.join(changed[:3])}.")
    unchecked = "was written by an earlier version, without checksums: damage cannot be detected."
    found += [f"{run.path} {unchecked}" for run in runs if not run.checked]
    nothing = [str(run.path) for run in runs if not run.images]
    return found + [f"{path} has no rows yet." for path in nothing]


def _changes(one: Evaluated, other: Evaluated) -> list[str]:
    """The settings of the model that differ between two runs of the same model on the same pictures."""
    first, second = (
        {**run.settings["model"], "longest answer": run.settings.get("max_new_tokens")} for run in (one, other)
    )
    differ = [key for key in first.keys() & second.keys() if first[key] != second[key]]
    # the hashes themselves would not help a reader
    return [key if key == "weights" else f"{key} {first[key]} and {second[key]}" for key in sorted(differ)]


def _chosen(sections: Sequence[Section], only: Collection[str] | None) -> list[Section]:
    """The wanted sections; with only one model, the table of models is replaced by that of methods."""
    if only is None:
        return list(sections)
    wanted = {*only}
    if "generalization" in wanted and "generalization" not in {section.key for section in sections}:
        wanted.add("baselines")
    return [section for section in sections if section.key in wanted]


def _missing(
    sections: Sequence[Section],
    runs: Sequence[Evaluated],
    benchmarks: Sequence[dict[str, Any]],
    only: Collection[str] | None,
) -> list[Missing]:
    """The tables without data, each with the command that measures it."""
    shown = {section.key for section in sections}
    model = runs[0].name if runs else benchmarks[0]["model"] if benchmarks else "MODEL"
    data = runs[0].spec if runs else "DATASET:FOLDER"
    wanted = {key: title for key, title in TABLES.items() if key not in shown and key in (only or TABLES)}
    if "generalization" in shown:
        wanted.pop("baselines", None)
    return [Missing(title, _command(key, model, data)) for key, title in wanted.items()]


def _command(key: str, model: str, data: str) -> str:
    import shlex

    more = " --model ANOTHER" if key == "generalization" else ""
    return f"ercr reproduce {key} --model {shlex.quote(model)}{more} --data {shlex.quote(data)}"


def _distinct(sections: Sequence[Section]) -> list[Section]:
    """Keys become file names: equal ones get numbers."""
    seen: dict[str, int] = {}

    def own(item: Any) -> Any:
        seen[item.key] = seen.get(item.key, 0) + 1
        return item if seen[item.key] == 1 else replace(item, key=f"{item.key}-{seen[item.key]}")

    result = []
    for section in sections:
        tables: list[Table] = [own(table.without_constant_heads()) for table in section.tables]
        result.append(replace(section, tables=tuple(tables)))
    seen.clear()
    for at, section in enumerate(result):
        plots: list[Plot] = [own(plot) for plot in section.plots]
        result[at] = replace(section, plots=tuple(plots))
    return result
