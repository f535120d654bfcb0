"""Obj-IoU, Func-IoU and F1-IoU of methods: against baselines, over models, and by subword rule."""

from __future__ import annotations

from collections.abc import Sequence

from ercr.methods.specs import NAMES, Spec
from ercr.report import paper
from ercr.report.cells import Cell, Cells, Kind, Line, Measure, as_estimate, make_differences, make_table, slug
from ercr.report.document import Column, Plot, Row, Section, Series, Table
from ercr.report.runs import Evaluated

SUBWORDS = {"max": "best subword", "mean": "avg-subword", "first": "first subword"}


def _published(cell: Cell) -> paper.Published | None:
    return paper.plausibility(cell.run.name, cell.run.spec, cell.spec, cell.run.protocol.subword)


IOU = Kind(
    (Measure("obj_iou", "Obj-IoU"), Measure("func_iou", "Func-IoU"), Measure("f1_iou", "F1-IoU")), "words", _published
)
TEXT = (Measure("rouge_l", "ROUGE-L", words=False), Measure("meteor", "METEOR", words=False))
PIXELS = Kind((Measure("precision", "Precision"), Measure("recall", "Recall")), "words", lambda cell: None)


def is_variant(spec: Spec) -> bool:
    """Whether it is ERCR with a part changed, shown in the ablation or in the study of its views."""
    return spec.name == "ercr" and spec.published is None and bool(spec.row or spec.scales)


def baselines(cells: Cells, reference: str | None) -> Section | None:
    """Every method of a model on its datasets. A model that the table of several models covers is left out."""
    shared = set(_shared(cells))
    tables: list[Table] = []
    plots: list[Plot] = []
    for model in cells.models:
        specs = [spec for spec in cells.specs(model) if not is_variant(spec)]
        if not specs or (len(cells.models) > 1 and set(specs) <= shared):
            continue
        lines = [
            Line((spec.label,), by_dataset(cells, model, spec), spec, block=NAMES.get(spec.name, ("", ""))[1])
            for spec in specs
        ]
        table = make_table(f"baselines-{slug(model)}", f"Methods on {model}", ("Method",), IOU, lines)
        pixels = make_table(f"pixels-{slug(model)}", f"Pixels of object words, {model}", ("Method",), PIXELS, lines)
        tables += filter(None, [table, make_differences(table, IOU, lines, reference), pixels])
        plots += filter(None, [forest(table, group, f"Methods on {model}, {group}") for group in groups_of(table)])
    text = (
        "Are maps of object words high on their object (Obj-IoU), and those of function words low (Func-IoU)? F1-IoU "
        "is their harmonic mean. All in percent, higher is better."
    )
    return Section("baselines", "Methods", text, tuple(tables), tuple(plots)) if tables else None


def generalization(cells: Cells, reference: str | None) -> Section | None:
    """The methods that several models have, model by model."""
    shared = _shared(cells)
    if not shared:
        return None
    lines = [
        Line((model, spec.label), by_dataset(cells, model, spec), spec, block=model, peers=model)
        for model in cells.models
        for spec in shared
        if by_dataset(cells, model, spec)
    ]
    table = make_table("generalization", "Models and methods", ("Model", "Method"), IOU, lines)
    tables = [table, *filter(None, [make_differences(table, IOU, lines, reference)])]
    text = "Is the order of the methods the same for families, sizes and generations of models?"
    groups = groups_of(table) if len(table.rows) < 40 else []
    plots = filter(None, [forest(table, group, f"Models and methods, {group}") for group in groups])
    return Section("generalization", "Models", text, tuple(tables), tuple(plots))


def subword(by_rule: dict[str, Cells], reference: str | None) -> Section | None:
    """The same methods scored by other rules for words of several tokens."""
    if len(by_rule) < 2 and "max" in by_rule:
        return None
    rules = [rule for rule in SUBWORDS if rule in by_rule]
    models = list(dict.fromkeys(model for cells in by_rule.values() for model in cells.models))
    lines = [
        Line((model, SUBWORDS[rule], spec.label), found, spec, block=f"{model} {rule}", peers=f"{model} {rule}")
        for model in models
        for rule in rules
        for spec in _scored_otherwise(by_rule, model)
        if (found := by_dataset(by_rule[rule], model, spec))
    ]
    if not lines:
        return None
    table = make_table("subword", "Rules for words of several tokens", ("Model", "Rule", "Method"), IOU, lines)
    tables = [table, *filter(None, [make_differences(table, IOU, lines, reference)])]
    text = (
        "A word of several tokens has several maps. By default the best one represents it; here the mean over "
        "them or the first one does."
    )
    return Section("subword", "Subwords", text, tuple(tables))


def _scored_otherwise(by_rule: dict[str, Cells], model: str) -> list[Spec]:
    """Methods with scores under another rule than the default."""
    found = [spec for rule, cells in by_rule.items() if rule != "max" for spec in cells.specs(model)]
    return list(dict.fromkeys(found))


def answers(runs: Sequence[Evaluated]) -> Section | None:
    """How close the answers are to the references; the same for all methods of a run."""
    rows: list[Row] = []
    read = []
    for run in runs:
        known = {name: found for name, found in run.text.summary().items() if found.n}
        estimates = {m.key: as_estimate(known[m.key], m) for m in TEXT if m.key in known}
        if estimates and (run.model, run.dataset) not in [row.heads for row in rows]:
            rows.append(Row((run.model, run.dataset), estimates))
            read.append(run)
    if not rows:
        return None
    columns = tuple(Column(m.key, m.label, better=None) for m in TEXT)
    meteors = sorted({str(run.settings["meteor"]) for run in read if run.settings.get("meteor")})
    notes = (f"METEOR by {', '.join(meteors)}.",) if meteors else ()
    facts = tuple(run.fact() for run in read)
    table = Table("answers", "Answers against references", ("Model", "Dataset"), columns, tuple(rows), facts, notes)
    text = "How close the answers are to the reference captions, in percent. It says nothing about the maps."
    return Section("answers", "Answers", text, (table,))


def forest(table: Table, group: str, title: str) -> Plot | None:
    """The columns of one group as panels, a row per method; a column without a score has none."""
    columns = [column for column in table.columns if column.group == group]
    series = []
    for column in columns:
        rows = [row for row in table.rows if column.key in row.cells]
        if not rows:
            continue
        estimates = [row.cells[column.key] for row in rows]
        series.append(
            Series(
                column.label,
                names_of(rows),
                [estimate.value for estimate in estimates],
                [_known(estimate.low, estimate.value) for estimate in estimates],
                [_known(estimate.high, estimate.value) for estimate in estimates],
                [estimate.paper for estimate in estimates],
                [row.ours for row in rows],
            )
        )
    if not series:
        return None
    return Plot(f"{table.key}-{slug(group)}".rstrip("-"), title, "forest", tuple(series), "percent")


def names_of(rows: Sequence[Row]) -> list[str]:
    """The names of rows; equal names are followed by the specification."""
    names = [" ".join(row.heads) for row in rows]
    return [
        f"{name} {row.detail}".strip() if names.count(name) > 1 else name for name, row in zip(names, rows, strict=True)
    ]


def _known(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or value != value else value


def _shared(cells: Cells) -> list[Spec]:
    """Methods that at least two models have."""
    return [
        spec
        for spec in cells.specs()
        if not is_variant(spec) and sum(spec in cells.specs(model) for model in cells.models) > 1
    ]


def by_dataset(cells: Cells, model: str, spec: Spec) -> dict[str, Cell]:
    found = {dataset: cells.get(model, dataset, spec) for dataset in cells.datasets}
    return {dataset: cell for dataset, cell in found.items() if cell is not None}


def groups_of(table: Table) -> list[str]:
    return [name for name, _ in table.groups()]
