"""A report as files: Markdown, LaTeX, a page, tables as CSV, everything as JSON, and the plots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ercr.errors import OutputError
from ercr.files.writing import write_atomic
from ercr.report import plots
from ercr.report.document import Report
from ercr.report.formats import data, html, latex, markdown

FORMATS: dict[str, Callable[[Report], str]] = {
    "markdown": markdown.render,
    "latex": latex.render,
    "html": lambda report: html.render(report, pictures(report)),
    "json": data.to_json,
}


def pictures(report: Report) -> dict[str, str]:
    """The plots for a page; none where matplotlib is not installed."""
    return {plot.key: plots.inline(plot) for plot in report.plots()} if plots.available() else {}


def write(report: Report, folder: Path) -> list[Path]:
    """Every file of a report; returns the three that people open first."""
    drawn = plots.available()
    try:
        for part in ("", "tables", *(["plots"] if drawn and report.plots() else [])):
            (folder / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be made: {error.strerror or error}.") from None
    for table in report.tables():
        write_atomic(folder / "tables" / f"{table.key}.csv", data.to_csv(table).encode())
    for plot in report.plots() if drawn else ():
        for kind, content in plots.files(plot).items():
            write_atomic(folder / "plots" / f"{plot.key}.{kind}", content)
    whole = {
        "report.html": FORMATS["html"](report),
        "report.md": markdown.render(report, drawn),
        "report.tex": latex.render(report, drawn),
        "report.json": data.to_json(report),
    }
    for name, text in whole.items():
        write_atomic(folder / name, text.encode())
    return [folder / name for name in whole]
