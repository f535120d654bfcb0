"""What subtracting the context removes from the maps of object, function and other words."""

from __future__ import annotations

from dataclasses import replace

from ercr.report import paper
from ercr.report.cells import PAPER_NOTE, Cells, Measure, as_estimate, is_ours
from ercr.report.document import Column, Estimate, Row, Section, Table

_MEASURES = (
    Measure("supp", "Supp.", words=False),
    Measure("area_red", "Area Red.", words=False),
    Measure("in_ret", "In Ret.", words=False),
    Measure("out_red", "Out Red.", words=False),
)
_PAPER = {
    "supp": "suppression",
    "area_red": "area_reduction",
    "in_ret": "inside_retention",
    "out_red": "outside_reduction",
}
_GROUPS = ("object", "function", "other")


def suppression(cells: Cells) -> Section | None:
    rows: list[Row] = []
    runs = {}
    for (model, dataset, text), cell in cells.found.items():
        known = cell.scores.summary("suppression")
        for group in _GROUPS if known else ():
            there = paper.suppression(cell.run.name, cell.run.spec, group) if is_ours(cell.spec) else None
            published = there or {}
            estimates = {"n": Estimate(float(cell.scores.tokens[group]))}
            for measure in _MEASURES:
                interval = known.get(f"{measure.key}_{group}")
                if interval is not None:
                    estimates[measure.key] = as_estimate(interval, measure, published.get(_PAPER[measure.key]))
            rows.append(
                Row(
                    (model, dataset, cell.spec.label, f"{group.capitalize()} tokens"),
                    estimates,
                    block=f"{model}{dataset}{text}",
                )
            )
            runs[id(cell.run)] = cell.run
    if not rows:
        return None
    columns = (Column("n", "Tokens", digits=0, better=None), *(Column(m.key, m.label, better=None) for m in _MEASURES))
    heads = ("Model", "Dataset", "Method", "Group")
    facts = tuple(run.fact() for run in runs.values())
    table = Table("suppression", "Evidence removed by subtracting the context", heads, columns, tuple(rows), facts)
    if table.has_paper:
        table = replace(table, notes=(f"{PAPER_NOTE} The paper does not name the model of this table.",))
    text = (
        "Relative to the map without context subtraction, in percent. Supp.: share of the map's mass that is removed. "
        "Area Red.: share of the area above 0.5 that is removed. For object words whose object is in the picture, "
        "In Ret.: share of the mass inside it that is kept; Out Red.: share of the mass outside it that is removed."
    )
    return Section("suppression", "Suppression", text, (table,))
