"""What methods cost, from a `benchmark.json`; measured numbers only, beside the paper's from its own machine.

The file, as `ercr benchmark` writes it:

    {"format": 1, "model": "…", "device": "NVIDIA H200", "dtype": "bfloat16", "new_tokens": 16,
     "rows": [{"method": "tam", "tflops": 3.5, "memory_gb": 6.8, "forwards": 1, "seconds_per_sample": 1.6,
               "overhead": 1.0}, …]}

A row has a `method`, a `name`, or both; a name alone is not a method (for example plain generation). Any
number of a row may be missing; it is then not shown.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ercr.errors import FileFormatError
from ercr.methods.specs import read
from ercr.report import paper
from ercr.report.cells import PAPER_NOTE, is_ours
from ercr.report.document import Column, Estimate, Row, Section, Table

FILE = "benchmark.json"
_COLUMNS = (
    Column("tflops", "TFLOPs", better="low"),
    Column("memory_gb", "Memory, GB", better="low"),
    Column("forwards", "Forward passes", digits=0, better=None),
    Column("seconds_per_sample", "Seconds per sample", digits=3, better="low"),
    Column("overhead", "Overhead, ×", better=None),
)
MEASURED = tuple(column.key for column in _COLUMNS)


def read_benchmark(path: Path) -> dict[str, Any]:
    """The content of a `benchmark.json`, checked."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        content["model"] = str(content["model"])
        content["rows"] = [_row(entry) for entry in content["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path} was not written by `ercr benchmark` ({error!r}): measure again.") from None
    return content


def _row(entry: dict[str, Any]) -> Row:
    estimates = {c.key: Estimate(float(entry[c.key])) for c in _COLUMNS if entry.get(c.key) is not None}
    if entry.get("method") is None:
        return Row((str(entry["name"]),), estimates)
    spec = read(str(entry["method"]))
    name = spec.label if entry.get("name") in (None, spec.text) else str(entry["name"])
    return Row((name,), estimates, "" if spec.label_is_complete else spec.text, is_ours(spec))


def _beside(row: Row, model: str) -> Row:
    """The row with the paper's numbers; a row that is not a method has none."""
    published = paper.efficiency(model, row.heads[0]) or {}
    return replace(row, cells={key: replace(f, paper=published.get(key)) for key, f in row.cells.items()})


def efficiency(benchmarks: Sequence[dict[str, Any]]) -> Section | None:
    tables = []
    for number, benchmark in enumerate(benchmarks):
        rows = [_beside(row, benchmark["model"]) for row in benchmark["rows"]]
        if rows:
            columns = tuple(_fine(c, rows) for c in _COLUMNS if any(c.key in row.cells for row in rows))
            name = paper.find_model(benchmark["model"]) or benchmark["model"]
            key = "efficiency" if number == 0 else f"efficiency-{number + 1}"
            table = Table(key, f"Cost on {name}", ("Method",), columns, tuple(rows), (_fact(benchmark),))
            tables.append(_noted(table))
    text = "Floating-point operations are counted, time and memory are measured, for all methods in the same run."
    return Section("efficiency", "Cost", text, tuple(tables)) if tables else None


def _fine(column: Column, rows: Sequence[Row]) -> Column:
    """The column with two more digits if all numbers are small, as for small models."""
    highest = max(row.cells[column.key].value for row in rows if column.key in row.cells)
    return replace(column, digits=column.digits + 2) if column.digits and highest < 0.5 else column


def _fact(benchmark: dict[str, Any]) -> str:
    names = {"device": "", "dtype": "", "dataset": "", "samples": " pictures", "new_tokens": " new tokens"}
    known = [f"{benchmark[key]}{ending}" for key, ending in names.items() if benchmark.get(key) is not None]
    return " · ".join(known) or "device not recorded"


def _noted(table: Table) -> Table:
    if not table.has_paper:
        return table
    note = f"{PAPER_NOTE} It was measured on one A100 80GB; times and memory compare only on the same machine."
    return replace(table, notes=(note,))
