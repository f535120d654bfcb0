"""The command line: parse, call the library, print. Results go to standard output, all else to standard error."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from ercr import plugins
from ercr.commands.benchmark import benchmark
from ercr.commands.check import check
from ercr.commands.convert import convert
from ercr.commands.evaluate import evaluate
from ercr.commands.explain import explain, show_saved
from ercr.commands.figure import figure
from ercr.commands.models import models
from ercr.commands.options import JsonOption, ModelOption, choose_model, load_model
from ercr.commands.output import check_outputs, emit_data, notes, results, show, working
from ercr.commands.report import report
from ercr.commands.reproduce import reproduce
from ercr.commands.serve import serve
from ercr.errors import ErcrError
from ercr.files.folders import make_results_folder
from ercr.printable import one_line
from ercr.version import __version__
from ercr.zoo.defaults import default_model

_INTERRUPTED = 130  # exit status after Ctrl+C
app = typer.Typer(
    name="ercr",
    help="Show which part of an image a multimodal language model used for each word it said.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        results.print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            help="Python file with your own methods, families or datasets; repeatable. The environment variable "
            "ERCR_PLUGINS may name such files, too.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Options before the command."""
    plugins.remember(plugin or [])


app.command()(explain)
app.command()(check)
app.command()(convert)
app.command(name="show")(show_saved)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("demo"),
    model: ModelOption = None,
    seed: Annotated[int, typer.Option(help="Which scene to draw.")] = 5895,
    as_json: JsonOption = None,
) -> None:
    """Draw a scene, let the packaged model describe it, and show the evidence for every word."""
    from ercr.commands import demo as demonstration

    check_outputs([], as_json)
    demonstration.check_installed()
    # `make photo-demo` writes photo.html into the same folder
    make_results_folder(out, demonstration.FILES, "explanation.ercr", beside=("photo.html",))
    began = time.perf_counter()
    explainer = load_model(choose_model(model, default_model(drawn=True)), "auto", "auto")
    loaded = time.perf_counter()
    with working("Drawing"):
        drawn = demonstration.draw(seed)
    started = time.perf_counter()
    with working("Explaining"):
        explanation = demonstration.explain(explainer, drawn)
        files = demonstration.write(explanation, drawn, out)
    spent = time.perf_counter() - started
    if as_json is not None:
        emit_data(explanation.to_dict(), as_json)
        return
    show(explanation)
    notes.print(f"loaded in {loaded - began:.1f} s, explained and written in {spent:.1f} s:")
    for file in files:
        notes.print(f"  {file}", soft_wrap=True)


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Describe this method; without it, list all.", show_default=False)
    ] = None,
    as_json: JsonOption = None,
) -> None:
    """List the attribution methods, or describe one: what it reads, its cost, paper and settings."""
    from dataclasses import fields

    from ercr.methods import methods as known
    from ercr.methods import resolve

    chosen = known().values() if name is None else [resolve(name)[0]]
    rows: list[dict[str, Any]] = [
        {
            "name": m.name,
            "title": m.title,
            "reads": m.reads,
            "cost": m.cost,
            "memory": m.memory,
            "settings": {f.name: f.default for f in fields(m.settings)},
            "paper": m.paper,
        }
        for m in chosen
    ]
    if as_json is not None:
        emit_data(rows, as_json)
        return
    table = Table(Column("method", no_wrap=True), "what it is", Column("settings", overflow="fold"), box=None)
    for row in rows:
        settings = ", ".join(f"{key}={_short(value)}" for key, value in row["settings"].items())
        if name is None:
            table.add_row(row["name"], row["title"], ", ".join(row["settings"]))
            continue
        for label, text in {**row, "settings": settings or "none"}.items():
            results.print(f"{label}: {text}", markup=False)
    if name is None:
        results.print(table)
        results.print("`ercr methods NAME` describes one: what it reads, its cost, paper and default settings.")


app.command()(models)
app.command()(evaluate)
app.command()(report)
app.command()(reproduce)
app.command()(benchmark)
app.command()(figure)
app.command()(serve)


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "/".join(f"{v:g}" for v in value) if isinstance(value, tuple) else str(value)


def _json_argument(arguments: list[str]) -> list[str]:
    """`--json` alone means standard output; followed by a .json file it means that file."""
    result = []
    for index, argument in enumerate(arguments):
        result.append(argument)
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        if argument == "--json" and not (following == "-" or following.endswith(".json")):
            result.append("-")
    return result


def _plugins_first(arguments: list[str]) -> list[str]:
    """`--plugin FILE` may be anywhere in the arguments; it is moved before the command's name."""
    first: list[str] = []
    rest = list(arguments)
    for index in reversed(range(rest.index("--") if "--" in rest else len(rest))):
        length = 2 if rest[index] == "--plugin" else 1 if rest[index].startswith("--plugin=") else 0
        first[:0] = rest[index : index + length]
        del rest[index : index + length]
    return first + rest


def main() -> None:
    """Run a command; exit status 0: done, 1: failed, 2: wrong use, with one sentence on standard error."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        status = _run(_plugins_first(_json_argument(sys.argv[1:])))
        if status == _INTERRUPTED:  # typer turns Ctrl+C into a status and says nothing
            raise KeyboardInterrupt
        sys.exit(status)
    except ErcrError as error:
        notes.print(f"[bold red]error:[/bold red] {_plain(str(error))}", soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        notes.print("interrupted")
        sys.exit(_INTERRUPTED)
    except Exception as error:
        logging.getLogger("ercr").debug("failure", exc_info=True)
        notes.print(f"[bold red]failed:[/bold red] {type(error).__name__}: {_plain(str(error))}", soft_wrap=True)
        sys.exit(1)


def _run(arguments: list[str]) -> int:
    """Parse and call; wrong use is shown in typer's form, without control characters from the arguments."""
    try:
        return app(args=arguments, prog_name="ercr", standalone_mode=False) or 0
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        from typer.rich_utils import rich_format_error

        error.message = one_line(error.message)  # type: ignore[attr-defined]
        rich_format_error(error)  # type: ignore[arg-type]
        return int(getattr(error, "exit_code", 2))


def _plain(message: str) -> str:
    """A message on one line, with its markup escaped."""
    from rich.markup import escape

    return escape(" ".join(message.split()))
