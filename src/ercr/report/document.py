"""The content of a report, independent of its format: estimates, tables, plots. Plain data only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Estimate:
    """A number with, if known, its 95 % confidence interval, the paper's number, a p-value and its sample size."""

    value: float
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    p: float | None = None
    images: int | None = None  # that have the score
    words: int | None = None  # that it is a mean over

    @property
    def difference(self) -> float | None:
        """Our number minus the paper's."""
        return None if self.paper is None else self.value - self.paper

    def to_dict(self) -> dict[str, float]:
        named = asdict(self)
        return {name: value for name, value in named.items() if value is not None and math.isfinite(value)}


@dataclass(frozen=True)
class Column:
    """One score or cost; columns of one `group` have a common head (a dataset, a model)."""

    key: str
    label: str
    group: str = ""
    digits: int = 2
    better: Literal["high", "low"] | None = "high"
    signed: bool = False  # a difference, written with its sign
    unit: str = ""


@dataclass(frozen=True)
class Row:
    """A method, or a model and a method; `detail` is its full specification if the name does not imply it."""

    heads: tuple[str, ...]
    cells: dict[str, Estimate]
    detail: str = ""
    ours: bool = False  # the paper's own method, which is highlighted
    block: str = ""  # rows of a block are not separated by a line
    peers: str = ""  # rows among which the best is marked


@dataclass(frozen=True)
class Table:
    key: str  # the name of its files
    title: str
    heads: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    facts: tuple[str, ...] = ()  # how it was measured, one line per run
    notes: tuple[str, ...] = ()  # what to know when reading it

    def groups(self) -> list[tuple[str, list[Column]]]:
        """Neighbouring columns under a common head."""
        found: list[tuple[str, list[Column]]] = []
        for column in self.columns:
            if not found or found[-1][0] != column.group:
                found.append((column.group, []))
            found[-1][1].append(column)
        return found

    def of_group(self, name: str) -> Table:
        """The columns of one group, with the rows that have an estimate in them."""
        columns = tuple(column for column in self.columns if column.group == name)
        rows = tuple(row for row in self.rows if any(column.key in row.cells for column in columns))
        return replace(self, columns=columns, rows=rows)

    def best(self) -> set[tuple[int, str]]:
        """(row, column) of the best estimate among peers, if there are at least two."""
        winners = set()
        for column in self.columns:
            families: dict[str, list[tuple[float, int]]] = {}
            for index, row in enumerate(self.rows):
                estimate = row.cells.get(column.key)
                if estimate is not None and math.isfinite(estimate.value):
                    families.setdefault(row.peers, []).append((estimate.value, index))
            for estimates in families.values() if column.better else ():
                if len(estimates) > 1:
                    top = (max if column.better == "high" else min)(value for value, _ in estimates)
                    winners |= {(index, column.key) for value, index in estimates if value == top}
        return winners

    def shown_heads(self) -> list[tuple[str, ...]]:
        """The rows' heads; those that repeat the row above are blank, except the last one."""
        shown, before = [], ("",) * len(self.heads)
        for row in self.rows:
            same = 0
            while same < len(self.heads) - 1 and row.heads[same] == before[same]:
                same += 1
            shown.append(("",) * same + row.heads[same:])
            before = row.heads
        return shown

    def without_constant_heads(self) -> Table:
        """Without heads that are the same in every row, except the last one: the facts name them."""
        kept = [
            i for i in range(len(self.heads)) if i == len(self.heads) - 1 or len({r.heads[i] for r in self.rows}) > 1
        ]
        rows = tuple(replace(row, heads=tuple(row.heads[i] for i in kept)) for row in self.rows)
        return replace(self, heads=tuple(self.heads[i] for i in kept), rows=rows)

    def column_size(self, column: Column) -> str:
        """The sample size of all estimates of a column, as text; empty if they differ, so that each shows its own."""
        found = {sample_size(row.cells[column.key]) for row in self.rows if column.key in row.cells}
        return found.pop() if len(found) == 1 else ""

    def own_size(self, estimate: Estimate, column: Column) -> str:
        """The sample size of an estimate, if its column does not show it."""
        return "" if self.column_size(column) else sample_size(estimate)

    @property
    def has_paper(self) -> bool:
        return any(estimate.paper is not None for row in self.rows for estimate in row.cells.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "title": self.title,
            "heads": list(self.heads),
            "columns": [
                {"key": c.key, "label": c.label, "group": c.group, "unit": c.unit, "better": c.better}
                for c in self.columns
            ],
            "rows": [
                {
                    "heads": list(row.heads),
                    **({"detail": row.detail} if row.detail else {}),
                    "figures": {key: estimate.to_dict() for key, estimate in row.cells.items()},
                }
                for row in self.rows
            ],
            "facts": list(self.facts),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Series:
    """One line or set of points: values `y` at `x`, with intervals; `paper` holds the paper's values."""

    name: str
    x: Sequence[Any]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    paper: Sequence[float | None] = ()
    ours: Sequence[bool] = ()  # which points belong to the paper's own method


@dataclass(frozen=True)
class Plot:
    """`lines`: one line per series over numbers or names; `forest`: one panel per series, over rows named by `x`."""

    key: str
    title: str
    kind: Literal["lines", "forest"]
    series: tuple[Series, ...]
    x_label: str = ""
    y_label: str = ""

    def to_dict(self) -> dict[str, Any]:
        series = [
            {
                "name": s.name,
                "x": list(s.x),
                "y": list(s.y),
                "low": list(s.low),
                "high": list(s.high),
                "paper": list(s.paper),
            }
            for s in self.series
        ]
        labels = {"x_label": self.x_label, "y_label": self.y_label}
        return {"key": self.key, "title": self.title, "kind": self.kind, **labels, "series": series}


@dataclass(frozen=True)
class Section:
    """One question of the paper: its tables and plots."""

    key: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True)
class Missing:
    """A table that the runs have no data for, and the command that would measure it."""

    title: str
    command: str


@dataclass(frozen=True)
class Report:
    runs: tuple[dict[str, Any], ...]  # what was read, one entry per run
    sections: tuple[Section, ...]
    missing: tuple[Missing, ...] = ()
    warnings: tuple[str, ...] = ()
    version: str = field(default="")

    def tables(self) -> list[Table]:
        return [table for section in self.sections for table in section.tables]

    def plots(self) -> list[Plot]:
        return [plot for section in self.sections for plot in section.plots]

    def to_dict(self) -> dict[str, Any]:
        return {
            "ercr": self.version,
            "runs": [dict(run) for run in self.runs],
            "warnings": list(self.warnings),
            "sections": [
                {
                    "key": s.key,
                    "title": s.title,
                    "text": s.text,
                    "tables": [table.to_dict() for table in s.tables],
                    "plots": [plot.to_dict() for plot in s.plots],
                }
                for s in self.sections
            ],
            "not_measured": [{"title": m.title, "command": m.command} for m in self.missing],
        }


def number(value: float, digits: int, signed: bool = False) -> str:
    """A number as text, with a minus sign instead of a hyphen; a dash if it is not finite."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:+,.{digits}f}" if signed else f"{value:,.{digits}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def interval(estimate: Estimate, column: Column) -> str:
    """The 95 % interval as text, with one digit less than the value; empty if there is none."""
    if (
        estimate.low is None
        or estimate.high is None
        or not (math.isfinite(estimate.low) and math.isfinite(estimate.high))
    ):
        return ""
    digits = max(column.digits - 1, 0)
    low, high = (number(v, digits, column.signed) for v in (estimate.low, estimate.high))
    return f"{low} to {high}" if column.signed or estimate.low < 0 else f"{low}–{high}"


def sample_size(estimate: Estimate) -> str:
    """The number of words and images of an estimate, as text; empty if unknown."""
    counts = ((estimate.words, "word"), (estimate.images, "image"))
    return " in ".join(f"{n:,} {noun}{'' if n == 1 else 's'}" for n, noun in counts if n is not None)


def probability(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def beside(estimate: Estimate, column: Column) -> str:
    """The paper's number and our difference from it; empty if the paper has none."""
    if estimate.paper is None or estimate.difference is None:
        return ""
    return f"{number(estimate.paper, column.digits)} ({number(estimate.difference, column.digits, signed=True)})"
