"""`ercr reproduce`: runs the evaluations of one of the paper's tables and reports them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from ercr.commands.evaluate import NEEDED, Bar, read_batch_size
from ercr.commands.options import AnswerLengthOption, JsonOption
from ercr.commands.output import emit_data, notes, results, say
from ercr.commands.report import FormatOption, deliver
from ercr.errors import InputError, require


def reproduce(
    table: Annotated[str | None, typer.Argument(help="A table that --list names, or all.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="Packaged model, folder or hub id; repeatable.", show_default=False),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", "-d", help="coco:FOLDER, …, or scenes:COUNT; repeatable.", show_default="scenes:100"),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the runs and the report.")] = Path(
        "reproduction"
    ),
    limit: Annotated[int | None, typer.Option(help="Only the first samples.", show_default=False)] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the tables and the methods that each runs.")] = False,
    protocol: Annotated[
        str, typer.Option(help="tam or clean, optionally with changed options: tam,match=exact.")
    ] = "tam",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="One process, or workers of a Ray cluster.")
    ] = "local",
    workers: Annotated[int, typer.Option(help="Number of Ray workers; each takes a GPU if there are any.")] = 1,
    batch_size: Annotated[str, typer.Option(help="Samples per batch, or auto; halved if memory runs out.")] = "auto",
    max_new_tokens: AnswerLengthOption = 256,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.", show_default=False)] = None,
    device: Annotated[str, typer.Option(help="auto (all GPUs), cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    form: FormatOption = None,
    as_json: JsonOption = None,
) -> None:
    """Measure one of the paper's tables with your models and data; the same command resumes an interrupted run."""
    from ercr.commands.output import check_outputs
    from ercr.report.write import prepare

    require("Evaluations need packages that score and store", "evaluate", *NEEDED)
    from ercr.commands import paper_runs as tables

    check_outputs([], as_json)
    if listed:
        _list(protocol, as_json)
        return
    if table is None:
        raise InputError("Name a table, such as ablation; `ercr reproduce --list` lists them.")
    tables.jobs(table, protocol)
    prepare(out)
    _silence_transformers()
    made = tables.reproduce(
        table,
        model or (),
        data or (),
        out,
        protocol=protocol,
        runs=_WithProgress(),
        limit=limit,
        engine=engine,
        workers=workers,
        batch_size=read_batch_size(batch_size),
        max_new_tokens=max_new_tokens,
        revision=revision,
        device=device,
        dtype=dtype,
    )
    deliver(made, out, form or "terminal", as_json)


def _silence_transformers() -> None:
    """Turn off transformers' warnings, and its progress bars if standard error is not a terminal."""
    from transformers.utils import logging as hub_logging

    hub_logging.set_verbosity_error()
    if not notes.is_terminal:
        hub_logging.disable_progress_bar()


class _WithProgress:
    """Prints which evaluation is running, and shows its progress."""

    def __call__(self, what: str, call: Any) -> Any:
        notes.print(what, markup=False, style="dim", soft_wrap=True)
        with Bar() as bar:
            return call(begin=bar.begin, progress=bar.advance, moved=bar.move, say=say)


def _list(protocol: str, as_json: str | None) -> None:
    from ercr.commands.paper_runs import ALL, jobs
    from ercr.report.build import TABLES

    rows: list[dict[str, Any]] = [
        {
            "table": name,
            "shows": title,
            "runs": [{"methods": list(j.methods), "subword": j.subword, **j.options} for j in jobs(name, protocol)],
        }
        for name, title in TABLES.items()
    ]
    if as_json is not None:
        emit_data(rows, as_json)
        return
    table = Table("table", "what it shows", "methods", box=None, pad_edge=False, show_lines=False)
    for row in rows:
        methods = list(dict.fromkeys(m for job in row["runs"] for m in job["methods"]))
        table.add_row(row["table"], row["shows"], ", ".join(methods) or "timed by `ercr benchmark`")
    table.add_row(ALL, "All tables; runs are shared where possible", "")
    results.print(table)
