"""Deletion and insertion: whether the word's probability depends on the pixels that a map ranks highest."""

from __future__ import annotations

from dataclasses import replace

from ercr.report import paper
from ercr.report.cells import Cell, Cells, Kind, Line, Measure, is_ours, make_differences, make_table, slug
from ercr.report.document import Plot, Section, Series, Table

_SIDES = {"deletion": "Deletion: log-probability lost", "insertion": "Insertion: log-probability gained"}
_CURVES = 7  # at most, in a plot


def _kind(cells: list[Cell]) -> Kind:
    """The table's budgets, and the area where all runs have whole curves."""
    known = {name for cell in cells for name in cell.scores.summary("faithfulness")}
    measures = [
        Measure(f"{side}_{what}", "AUC" if what == "auc" else f"{what} %", title, 1.0, 3)
        for side, title in _SIDES.items()
        for what in (10, 20, 30, "auc")
        if f"{side}_{what}" in known
    ]
    return Kind(tuple(measures), "faithfulness", _published)


def _published(cell: Cell) -> paper.Published | None:
    return paper.faithfulness(cell.run.name, cell.run.spec, cell.spec)


def faithfulness(cells: Cells, reference: str | None) -> Section | None:
    """One table per dataset, and for whole curves a pair of plots per model."""
    tables: list[Table] = []
    plots: list[Plot] = []
    for dataset in cells.datasets:
        lines = []
        for model in cells.models:
            for spec in cells.specs(model, dataset):
                cell = cells.get(model, dataset, spec)
                if cell is not None and cell.scores.summary("faithfulness"):
                    lines.append(Line((model, spec.label), {"": cell}, spec, block=model, peers=model))
        if not lines:
            continue
        kind = _kind([line.cells[""] for line in lines])
        title = f"Deletion and insertion on {dataset}"
        table = make_table(f"faithfulness-{slug(dataset)}", title, ("Model", "Method"), kind, lines)
        table = replace(table, notes=(*table.notes, _baselines([line.cells[""] for line in lines])))
        tables += filter(None, [table, make_differences(table, kind, lines, reference)])
        for model in cells.models:
            plots += _curves(model, dataset, [line.cells[""] for line in lines if line.block == model])
    text = (
        "The answer is fixed and the first token of each object word is scored again. Deletion blanks the pixels that "
        "the map ranks highest, insertion shows only them: log-probability lost and gained, higher is better. AUC is "
        "the mean height of the curve over all budgets."
    )
    return Section("faithfulness", "Faithfulness", text, tuple(tables), tuple(plots)) if tables else None


def _baselines(cells: list[Cell]) -> str:
    """What replaces missing pixels; for each model, if they differ."""
    names = {"mean": "the picture's mean colour", "blur": "the picture after a strong blur"}
    found = {cell.run.model: names.get(str(cell.run.settings.get("baseline", "mean")), "unknown") for cell in cells}
    kinds = dict.fromkeys(found.values())
    told = next(iter(kinds)) if len(kinds) == 1 else ", ".join(f"{kind} ({model})" for model, kind in found.items())
    return f"Missing pixels are replaced by {told}."


def _curves(model: str, dataset: str, cells: list[Cell]) -> list[Plot]:
    plots = []
    for side, title in _SIDES.items():
        chosen = _chosen(cells, side)
        series = [found for cell in chosen if (found := _series(cell, side))]
        if series:
            key = f"{side}-{slug(model)}-{slug(dataset)}"
            label = title.partition(": ")[2]
            some = f" ({len(chosen)} of {len(cells)} methods)" if len(chosen) < len(cells) else ""
            name = f"{title}, {model} on {dataset}{some}"
            plots.append(Plot(key, name, "lines", tuple(series), "percent of pixels", label))
    return plots


def _chosen(cells: list[Cell], side: str) -> list[Cell]:
    """As many curves as a reader can distinguish: the paper's three, then the highest."""
    paper_first = {"CAM": 2, "TAM": 1, "ERCR": 0}

    def rank(cell: Cell) -> tuple[int, float]:
        area = cell.scores.summary("faithfulness").get(f"{side}_auc")
        return paper_first.get(cell.spec.published or "", 3), -area.value if area else 0.0

    kept = {id(cell) for cell in sorted(cells, key=rank)[:_CURVES]}
    return [cell for cell in cells if id(cell) in kept]


def _series(cell: Cell, side: str) -> Series | None:
    """A curve with its interval; None if only the table's budgets were measured."""
    budgets = [round(100 * float(share)) for share in cell.run.settings.get("budgets") or ()]
    if len(budgets) <= 3:
        return None
    known = cell.scores.summary("faithfulness")
    points = [known[f"{side}_{budget}"] for budget in budgets]
    published = _published(cell) or {}
    return Series(
        cell.spec.label,
        budgets,
        [point.value for point in points],
        [point.low for point in points],
        [point.high for point in points],
        [published.get(f"{side}_{budget}") for budget in budgets],
        [is_ours(cell.spec)] * len(budgets),
    )
