"""A report as files: Markdown, LaTeX, an HTML page, tables as CSV, everything as JSON, and the plots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ercr.errors import OutputError
from ercr.files.folders import make_results_folder
from ercr.files.writing import write_atomic
from ercr.report import plots
from ercr.report.document import Report
from ercr.report.formats import data, html, latex, markdown

_MARK = "report.json"
_FILES = (_MARK, "report.html", "report.md", "report.tex", "tables", "plots")
FORMATS: dict[str, Callable[[Report], str]] = {
    "markdown": markdown.render,
    "latex": latex.render,
    "html": lambda report: html.render(report, pictures(report)),
    "json": data.to_json,
}


def prepare(folder: Path) -> None:
    """Create the folder of a report; refuse a folder that holds other files than a report and runs."""
    make_results_folder(folder, _FILES, _MARK, beside=("runs",))


def pictures(report: Report) -> dict[str, str]:
    """The plots for a page; none if matplotlib is not installed."""
    return {plot.key: plots.inline(plot) for plot in report.plots()} if plots.available() else {}


def write(report: Report, folder: Path) -> list[Path]:
    """Write every file of a report; returns the ones to open first."""
    drawn = plots.available()
    prepare(folder)
    write_atomic(folder / _MARK, data.to_json(report).encode())
    try:
        for part in ("tables", *(["plots"] if drawn and report.plots() else [])):
            (folder / part).mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be created: {error.strerror or error}.") from None
    for table in report.tables():
        write_atomic(folder / "tables" / f"{table.key}.csv", data.to_csv(table).encode())
    for plot in report.plots() if drawn else ():
        for kind, content in plots.files(plot).items():
            write_atomic(folder / "plots" / f"{plot.key}.{kind}", content)
    whole = {
        "report.html": FORMATS["html"](report),
        "report.md": markdown.render(report, drawn),
        "report.tex": latex.render(report, drawn),
    }
    for name, text in whole.items():
        write_atomic(folder / name, text.encode())
    return [folder / name for name in (*whole, _MARK)]
