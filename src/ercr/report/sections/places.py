"""Whether evidence for objects is in the right picture and at the right time, for several pictures and clips."""

from __future__ import annotations

from ercr.report.cells import Cells, Kind, Line, Measure, make_differences, make_table, slug
from ercr.report.document import Section, Table

_KIND = Kind(
    (
        Measure("share_there", "Share there", digits=1),
        Measure("most_there", "Most there", digits=1),
    ),
    "places",
    lambda cell: None,
)


def places(cells: Cells, reference: str | None) -> Section | None:
    """One table per dataset."""
    tables: list[Table] = []
    for dataset in cells.datasets:
        lines = [
            Line((model, spec.label), {"": cell}, spec, block=model, peers=model)
            for model in cells.models
            for spec in cells.specs(model, dataset)
            if (cell := cells.get(model, dataset, spec)) is not None and cell.scores.summary("places")
        ]
        if lines:
            title = f"Where the evidence is, on {dataset}"
            table = make_table(f"places-{slug(dataset)}", title, ("Model", "Method"), _KIND, lines)
            tables += filter(None, [table, make_differences(table, _KIND, lines, reference)])
    text = (
        "Object words of samples with several pictures or a clip, in percent. Share there: the share of a word's "
        "evidence in the pictures, or in the parts of a clip's time, that show the object; each counts the same, "
        "whatever its number of cells. Most there: words whose picture or clip with most evidence shows the object."
    )
    return Section("places", "Right picture, right time", text, tuple(tables)) if tables else None
