"""`ercr explain` with a folder or a list: many pictures into one folder of rows; parses, calls and prints."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ercr.commands.evaluate import Bar, read_batch_size
from ercr.commands.options import check_device, choose_model
from ercr.commands.output import SUFFIXES, check_outputs, emit_data, notes, results, say
from ercr.errors import InputError, require
from ercr.zoo.defaults import default_model

_SHOWN = 5  # reasons of failures that are printed


def explain_many(
    source: str,
    out: list[Path],
    model: str | None,
    engine: str,
    workers: int,
    batch_size: str,
    retry_failed: bool,
    as_json: str | None,
    quiet: bool = False,
    **options: Any,
) -> None:
    """Explain all pictures of a source into a folder; `quiet` prints no summary."""
    from transformers.utils.logging import disable_progress_bar

    require("Rows of many pictures need a package that stores them", "evaluate", "pyarrow")
    from ercr.album import explain_files

    check_outputs([], as_json)
    check_device(options["device"])
    if len(out) != 1 or out[0].suffix.lower() in SUFFIXES:
        raise InputError("Many pictures are explained into one folder: give it as --out RUN.")
    disable_progress_bar()  # transformers' bar for loading weights would disturb our own
    default, bar = default_model(), Bar("pictures", "explained")

    def begin(total: int, done: int) -> None:
        choose_model(model, default)  # announces the default only after all other checks
        bar.begin(total, done)

    started = time.perf_counter()
    try:
        with bar:
            album = explain_files(
                model or default.name,
                source,
                out[0],
                engine=engine,  # type: ignore[arg-type]
                workers=workers,
                batch_size=read_batch_size(batch_size),
                retry_failed=retry_failed,
                begin=begin,
                progress=bar.advance,
                say=say,
                moved=bar.move,
                **options,
            )
    except KeyboardInterrupt:
        kept = f"{bar.done} of {bar.total} pictures are kept in {out[0]}; run the same command again to resume."
        notes.print(kept, markup=False, soft_wrap=True)
        raise
    summary = {**album.summary(), "seconds": round(time.perf_counter() - started, 1)}
    if as_json is not None:
        emit_data(summary, as_json)
        return
    if quiet:
        return
    for reason, count in list(summary["reasons"].items())[:_SHOWN]:
        notes.print(f"{count} failed ({reason}); the column reason of their rows says why", markup=False)
    told = f"{summary['pictures']} pictures in {summary['seconds']} s: {album.path}"
    results.print(told, markup=False, soft_wrap=True)
    if options.get("pages"):
        results.print(f"pages: {album.path / 'index.html'}", markup=False, soft_wrap=True)
