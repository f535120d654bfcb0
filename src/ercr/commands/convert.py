"""`ercr convert`: rewrites checkpoints that need remote code, so that transformers' own classes load them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ercr.commands.options import JsonOption
from ercr.commands.output import check_outputs, emit_data, notes


def convert(
    checkpoint: Annotated[str, typer.Argument(help="Folder or hub id, such as OpenGVLab/InternVL2_5-2B.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the converted checkpoint.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.", show_default=False)] = None,
    as_json: JsonOption = None,
) -> None:
    """Rewrite an InternVL 2 or 2.5 checkpoint for transformers' own class; no remote code is run.

    Files are converted one at a time. If it is interrupted, run the same command again to resume.
    """
    from ercr.models.convert import convert as rewrite

    check_outputs([], as_json)
    with _bar() as progress:
        rewrite(checkpoint, out, revision, progress)
    if as_json is not None:
        emit_data({"checkpoint": checkpoint, "folder": str(out)}, as_json)
    notes.print(f"wrote {out}: ercr explain photo.jpg --model {out}", markup=False, soft_wrap=True)


@contextmanager
def _bar() -> Iterator[Any]:
    """A progress bar on standard error, where it is a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Converting"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=notes, disable=not notes.is_terminal) as shown:
        task = shown.add_task("weights", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
