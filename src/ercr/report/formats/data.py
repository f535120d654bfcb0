"""A report for programs: JSON of everything, CSV of a table."""

from __future__ import annotations

import csv
import io
import json

from ercr.report.document import Report, Table

_PARTS = ("value", "low", "high", "paper", "p", "words", "images")


def to_json(report: Report) -> str:
    return json.dumps(report.to_dict(), ensure_ascii=False, indent=1) + "\n"


def to_csv(table: Table) -> str:
    """One line per row; an estimate fills the columns `key`, `key_low`, `key_high`, … for the parts that it has."""
    rows = [{key: estimate.to_dict() for key, estimate in row.cells.items()} for row in table.rows]
    wanted = [(c.key, part) for c in table.columns for part in _PARTS if any(part in r.get(c.key, {}) for r in rows)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*table.heads, "specification", *(k if part == "value" else f"{k}_{part}" for k, part in wanted)])
    for row, estimates in zip(table.rows, rows, strict=True):
        writer.writerow([*row.heads, row.detail, *(estimates.get(key, {}).get(part, "") for key, part in wanted)])
    return out.getvalue()
