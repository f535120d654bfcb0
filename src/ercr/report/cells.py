"""Scores by model, dataset and method, from all runs together, and the tables made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ercr.methods.specs import Spec, place
from ercr.metrics.pooled import Interval
from ercr.report.document import Column, Estimate, Row, Table
from ercr.report.paired import differences
from ercr.report.paper import Published
from ercr.report.runs import Evaluated, Part, Scores

PAPER_NOTE = "Paper (◇): the published number and, in parentheses, our number minus it."


@dataclass(frozen=True)
class Cell:
    """One method on one dataset by one model."""

    run: Evaluated
    scores: Scores

    @property
    def spec(self) -> Spec:
        return self.scores.spec


@dataclass
class Cells:
    """All cells of some runs with the same rule for subwords."""

    found: dict[tuple[str, str, str], Cell] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Sequence[Evaluated], part: Part = "words") -> Cells:
        """Cells with scores of one kind; of several runs with a cell, the one with more images, then methods."""
        found: dict[tuple[str, str, str], Cell] = {}
        for run in sorted(runs, key=lambda run: -len(run.scores)):
            for spec, scores in run.scores.items():
                key = (run.model, run.dataset, spec)
                larger = key not in found or len(scores.scored) > len(found[key].scores.scored)
                if larger and any(getattr(scores, part).images.values()):
                    found[key] = Cell(run, scores)
        order = [(run.model, run.dataset) for run in runs]  # in the order given
        return cls(dict(sorted(found.items(), key=lambda item: order.index(item[0][:2]))))

    def get(self, model: str, dataset: str, spec: Spec) -> Cell | None:
        return self.found.get((model, dataset, spec.text))

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(model for model, _, _ in self.found))

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(dataset for _, dataset, _ in self.found))

    def specs(self, model: str | None = None, dataset: str | None = None) -> list[Spec]:
        """The methods of a model and a dataset, in the paper's order."""
        found = {
            cell.spec
            for (m, d, _), cell in self.found.items()
            if (model is None or m == model) and (dataset is None or d == dataset)
        }
        return sorted(found, key=place)


@dataclass(frozen=True)
class Measure:
    """One score of a `Pooled`: how a table names and formats it."""

    key: str
    label: str
    group: str = ""
    scale: float = 100.0
    digits: int = 2
    words: bool = True  # a mean over words


@dataclass(frozen=True)
class Kind:
    """Scores that are shown together, where their sums are, and the paper's values for them."""

    measures: tuple[Measure, ...]
    part: Part
    paper: Callable[[Cell], Published | None]


@dataclass(frozen=True)
class Line:
    """A future row: its cells by the name of their group of columns."""

    heads: tuple[str, ...]
    cells: Mapping[str, Cell]
    spec: Spec
    block: str = ""
    peers: str = ""  # lines that are compared with each other


def make_table(key: str, title: str, heads: tuple[str, ...], kind: Kind, lines: Sequence[Line]) -> Table:
    """Every score with its interval and the paper's number."""
    groups = _groups(lines)
    columns = [
        Column(_key(group, measure), measure.label, measure.group or group, measure.digits)
        for group in groups
        for measure in kind.measures
    ]
    rows = [_row(line, _estimates(line, kind)) for line in lines]
    runs = {id(cell.run): cell.run for line in lines for cell in line.cells.values()}
    facts = dict.fromkeys(run.fact() for run in runs.values())
    table = Table(key, title, heads, tuple(columns), tuple(rows), tuple(facts))
    return replace(table, notes=tuple(_paper_notes(table, runs.values())))


def _estimates(line: Line, kind: Kind) -> dict[str, Estimate]:
    cells = {}
    for group, cell in line.cells.items():
        known, published = cell.scores.summary(kind.part), kind.paper(cell) or {}
        for measure in kind.measures:
            if measure.key in known and math.isfinite(known[measure.key].value):
                cells[_key(group, measure)] = as_estimate(known[measure.key], measure, published.get(measure.key))
    return cells


def as_estimate(found: Interval, measure: Measure, published: float | None = None) -> Estimate:
    """A pooled score in a table's units, with the paper's number beside it."""
    words = int(found.total) if measure.words else None
    estimate = Estimate(found.value, found.low, found.high, published, images=found.n, words=words)
    return _scaled(estimate, measure.scale)


def _scaled(estimate: Estimate, scale: float) -> Estimate:
    low, high = (None if v is None else v * scale for v in (estimate.low, estimate.high))
    return replace(estimate, value=estimate.value * scale, low=low, high=high)


def make_differences(table: Table, kind: Kind, lines: Sequence[Line], reference: str | None) -> Table | None:
    """Each method minus the reference of its peers, over common images; None if nothing can be compared."""
    rows: list[Row] = []
    against: dict[str, None] = {}
    for peers in dict.fromkeys(line.peers for line in lines):
        family = [line for line in lines if line.peers == peers]
        base = _reference(family, reference)
        tested = [(line, _compared(line, base, kind)) for line in family if line is not base]
        shown = [(line, cells) for line, cells in tested if cells]
        if shown:
            against[base.spec.label] = None
        rows += [_row(line, cells) for line, cells in shown]
    if not rows:
        return None
    return replace(
        table,
        key=f"{table.key}-differences",
        title=f"Differences from {', '.join(against)}, over the same images",
        columns=tuple(replace(column, signed=True, better=None) for column in table.columns),
        rows=tuple(_adjusted(rows)),
        facts=(),
        notes=(
            "Intervals: paired bootstrap over images. p: two-sided permutation test over images, corrected for the "
            "number of tests in a column (Holm).",
        ),
    )


def _reference(lines: Sequence[Line], wanted: str | None) -> Line:
    """The requested method, else TAM, else the first."""
    for match in (lambda line: line.spec.text == wanted, lambda line: line.spec.published == "TAM"):
        found = next(filter(match, lines), None)
        if found is not None:
            return found
    return lines[0]


def _compared(line: Line, base: Line, kind: Kind) -> dict[str, Estimate]:
    cells = {}
    for group in line.cells.keys() & base.cells.keys():
        ours, theirs = (getattr(side.cells[group].scores, kind.part) for side in (line, base))
        known = set(ours.names) & set(theirs.names)
        measures = {measure.key: measure for measure in kind.measures if measure.key in known}
        for name, estimate in differences(ours, theirs, list(measures)).items():
            cells[_key(group, measures[name])] = _scaled(estimate, measures[name].scale)
    return cells


def _adjusted(rows: Sequence[Row]) -> list[Row]:
    """The rows with p-values corrected for the number of comparisons in a column (Holm)."""
    cells = [dict(row.cells) for row in rows]
    for key in {key for row in cells for key in row}:
        tested = sorted((i for i in range(len(cells)) if key in cells[i]), key=lambda i: cells[i][key].p or 0.0)
        highest = 0.0
        for rank, i in enumerate(tested):
            highest = max(highest, min(1.0, (len(tested) - rank) * (cells[i][key].p or 0.0)))
            cells[i][key] = replace(cells[i][key], p=highest)
    return [replace(row, cells=own) for row, own in zip(rows, cells, strict=True)]


def _paper_notes(table: Table, runs: Iterable[Evaluated]) -> list[str]:
    if not table.has_paper:
        return []
    splits = {"coco": 5000, "grandf": 1000, "openpsg": 3176}
    less = [run for run in runs if run.images < splits.get(run.spec.partition(":")[0], 0)]
    smaller = f" Ours uses {less[0].images:,} images of {less[0].dataset}, the paper the whole split." if less else ""
    return [f"{PAPER_NOTE}{smaller}"]


def _row(line: Line, cells: dict[str, Estimate]) -> Row:
    """A row; the method's specification is shown if its name does not imply it."""
    spec = line.spec
    detail = "" if spec.label_is_complete else spec.text
    return Row(line.heads, cells, detail, is_ours(spec), line.block, line.peers)


def is_ours(spec: Spec) -> bool:
    return spec.published == "ERCR"


def _groups(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(group for line in lines for group in line.cells))


def _key(group: str, measure: Measure) -> str:
    return f"{group} {measure.key}" if group else measure.key


def slug(text: Any) -> str:
    """Letters and digits of a name, for keys and file names."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(text).lower())
    return "-".join(filter(None, kept.split("-")))
