"""What the parts of ERCR add: the ablation, and how scores depend on the number and range of its views."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ercr.methods.specs import ABLATION, Spec
from ercr.report import paper
from ercr.report.cells import Cell, Cells, Kind, Line, make_differences, make_table, slug
from ercr.report.document import Plot, Section, Series, Table
from ercr.report.sections.plausibility import IOU, forest

_ABLATION = Kind(IOU.measures, IOU.part, lambda cell: paper.ablation(cell.run.name, cell.run.spec, cell.spec))


def ablation(cells: Cells, reference: str | None) -> Section | None:
    """Rows are parts of ERCR, columns are models; one table per dataset."""
    tables: list[Table] = []
    plots: list[Plot] = []
    for dataset in cells.datasets:
        models = [model for model in cells.models if len(_rows(cells, model, dataset)) > 1]
        lines = []
        for row, (name, _) in ABLATION.items():
            found = {model: spec for model in models if (spec := _rows(cells, model, dataset).get(row))}
            own = {model: cell for model, spec in found.items() if (cell := cells.get(model, dataset, spec))}
            if own:
                lines.append(Line((name,), own, next(iter(found.values())), block=_block(row)))
        if lines:
            title = f"Parts of ERCR on {dataset}"
            table = make_table(f"ablation-{slug(dataset)}", title, ("Variant",), _ABLATION, lines)
            tables += filter(None, [table, make_differences(table, _ABLATION, lines, reference)])
            plots += filter(None, [forest(table, model, f"{title}, {model}") for model in models])
    text = (
        "ER combines the evidence at several scales; PCR subtracts what the preceding words explain. "
        "Each row omits or replaces a part; all use the same clipping and filter."
    )
    return Section("ablation", "Ablation", text, tuple(tables), tuple(plots)) if tables else None


def _rows(cells: Cells, model: str, dataset: str) -> dict[tuple[str | None, str | None], Spec]:
    return {spec.row: spec for spec in cells.specs(model, dataset) if spec.row is not None}


def _block(row: tuple[str | None, str | None]) -> str:
    """The blocks of the paper's table: one view, several without a context, both."""
    return "one view" if row[0] is None else "views" if row[1] is None else "both"


def views(cells: Cells) -> Section | None:
    text = "How many views help: scales are spaced evenly from 0.5 to 1; one view is the image itself."
    return _sweep(cells, "views", "Number of views", "Views", text, lambda spec: spec.views)


def scales(cells: Cells) -> Section | None:
    text = "Which range of scales helps: three views spaced evenly over it, or as listed."
    return _sweep(cells, "scales", "Range of scales", "Scales", text, _span)


def _span(spec: Spec) -> str | None:
    """The range of scales; other numbers of views over the default range belong to the study of views."""
    return None if spec.views not in (None, 3) else spec.span


def _sweep(cells: Cells, key: str, title: str, head: str, text: str, place: Callable[[Spec], object]) -> Section | None:
    """A table and a plot over one setting of ERCR, for every model and dataset with at least two values of it."""
    lines: list[Line] = []
    for model in cells.models:
        for dataset in cells.datasets:
            specs = _places(cells.specs(model, dataset), place)
            if len(specs) > 1:
                lines += [
                    Line((model, str(value)), {dataset: cell}, spec, block=model, peers=model)
                    for value, spec in specs.items()
                    if (cell := cells.get(model, dataset, spec))
                ]
    if not lines:
        return None
    table = make_table(key, title, ("Model", head), IOU, _joined(lines))
    series = _series(table)
    plot = Plot(key, f"F1-IoU by {title.lower()}", "lines", tuple(series), title, "F1-IoU, percent")
    return Section(key, title, text, (table,), (plot,))


def _places(specs: Sequence[Spec], place: Callable[[Spec], object]) -> dict[object, Spec]:
    """Methods by the value of the setting, in its order; ERCR itself before others of the same value."""
    found: dict[object, Spec] = {}
    for spec in specs:
        value = place(spec)
        if value is not None:
            found.setdefault(value, spec)
    return {value: found[value] for value in sorted(found, key=lambda value: _order(value, found[value]))}


def _order(value: object, spec: Spec) -> tuple[float, ...]:
    return (value,) if isinstance(value, int) else (min(spec.scales), max(spec.scales), len(spec.scales))


def _joined(lines: Sequence[Line]) -> list[Line]:
    """Lines with equal heads joined into one, with the datasets side by side."""
    cells: dict[tuple[str, ...], dict[str, Cell]] = {}
    for line in lines:
        cells.setdefault(line.heads, {}).update(line.cells)
    first = {line.heads: line for line in reversed(lines)}
    return [Line(heads, own, first[heads].spec, first[heads].block, first[heads].peers) for heads, own in cells.items()]


def _series(table: Table) -> list[Series]:
    found = []
    for column in (c for c in table.columns if c.key.endswith("f1_iou")):
        for model in dict.fromkeys(row.heads[0] for row in table.rows):
            rows = [row for row in table.rows if row.heads[0] == model and column.key in row.cells]
            estimates = [row.cells[column.key] for row in rows]
            x = [int(row.heads[1]) if row.heads[1].isdigit() else row.heads[1] for row in rows]
            name = model if len(table.groups()) == 1 else f"{model}, {column.group}"
            found.append(
                Series(
                    name,
                    x,
                    [f.value for f in estimates],
                    [f.value if f.low is None else f.low for f in estimates],
                    [f.value if f.high is None else f.high for f in estimates],
                )
            )
    return [series for series in found if series.x]
