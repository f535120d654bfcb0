"""`ercr report`: tables and plots of runs, with the paper's numbers beside ours."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ercr.commands.options import JsonOption
from ercr.commands.output import notes, results, working
from ercr.errors import missing, require
from ercr.printable import json_text, printable

if TYPE_CHECKING:
    from ercr.report.document import Report

Format = Literal["terminal", "markdown", "latex", "html", "json"]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder for report.html, .md, .tex, .json, tables and plots.", show_default=False),
]
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="Print the report in this format; default: terminal, or nothing with --out."),
]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `ercr evaluate` or `ercr benchmark` wrote.")],
    out: OutOption = None,
    form: FormatOption = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Method that the others are compared with; by default TAM, else the first.", show_default=False
        ),
    ] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Add the paper's own tables.")] = False,
    as_json: JsonOption = None,
) -> None:
    """Show what runs measured: tables with confidence intervals and tests, plots, and the paper's numbers."""
    from ercr.commands.output import check_outputs

    require("Reports need pyarrow", "evaluate", "pyarrow")
    from ercr.report.build import build
    from ercr.report.write import prepare

    check_outputs([], as_json)
    if out is not None:
        prepare(out)
    with working("Reading the runs"):
        made = build(runs, reference, paper)
    deliver(made, out, form, as_json)


def deliver(made: Report, out: Path | None, form: Format | None, as_json: str | None) -> None:
    """Write a report's folder, print it in one format, or both."""
    if out is not None:
        from ercr.report.plots import available
        from ercr.report.write import write

        with working("Writing the report"):
            files = write(made, out)
        for file in files:
            notes.print(f"wrote {file}", markup=False, soft_wrap=True)
        if not available():
            notes.print(str(missing("Plots need matplotlib", "evaluate")), markup=False, soft_wrap=True)
    if as_json is not None:
        from ercr.commands.output import emit_data

        emit_data(made.to_dict(), as_json)
    elif form is not None or out is None:
        _print(made, form or "terminal")


def _print(made: Report, form: Format) -> None:
    if form == "terminal":
        from ercr.report.formats.terminal import show

        show(made, results)
        return
    from ercr.report.write import FORMATS

    text = FORMATS[form](made)
    sys.stdout.write(json_text(text) if form == "json" else printable(text))
