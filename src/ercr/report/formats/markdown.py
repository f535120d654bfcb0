"""A report as Markdown: one table per group of columns, the paper's numbers in columns of their own."""

from __future__ import annotations

from ercr.report.document import Column, Estimate, Report, Table, beside, interval, number, probability


def render(report: Report, plots: bool = False) -> str:
    """The whole report; with `plots`, pictures are linked as the files of a report's folder."""
    parts = ["# Report", *(f"> {_text(warning)}" for warning in report.warnings)]
    for section in report.sections:
        parts += [f"## {_text(section.title)}", _text(section.text)]
        parts += [render_table(table) for table in section.tables]
        if plots:
            parts += [f"![{_text(plot.title)}](plots/{plot.key}.png)" for plot in section.plots]
    if report.missing:
        items = [f"- {_text(item.title)}: {_code(item.command)}" for item in report.missing]
        parts += ["## Not measured", "\n".join(items)]
    return "\n\n".join(parts) + "\n"


def render_table(table: Table) -> str:
    parts = [f"### {_text(table.title)}", "  \n".join(_text(fact) for fact in table.facts)]
    groups = [name for name, _ in table.groups()]
    for name in groups:
        if len(groups) > 1:
            parts.append(f"**{_text(name)}**")
        parts.append(_grid(table.of_group(name)))
    parts += [_text(note) for note in table.notes]
    return "\n\n".join(part for part in parts if part)


def _grid(table: Table) -> str:
    columns = table.columns
    published = {
        c.key for c in columns if any(r.cells[c.key].paper is not None for r in table.rows if c.key in r.cells)
    }
    heads = [_text(head) for head in table.heads]
    for column in columns:
        heads += [_label(table, column), *(["paper"] if column.key in published else [])]
    lines = [heads, ["---"] * len(table.heads) + ["---:"] * (len(heads) - len(table.heads))]
    best = table.best()
    for index, (row, shown) in enumerate(zip(table.rows, table.shown_heads(), strict=True)):
        cells = [_text(head) for head in shown]
        if row.detail:
            cells[-1] += f" {_code(row.detail)}"
        for column in columns:
            estimate = row.cells.get(column.key)
            cells.append(_cell(table, estimate, column, (index, column.key) in best))
            if column.key in published:
                cells.append("" if estimate is None else beside(estimate, column))
        lines.append(cells)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _label(table: Table, column: Column) -> str:
    """A column's head, with the sample size if all of its estimates have the same."""
    count = table.column_size(column)
    return _text(column.label) + (f" ({count})" if count else "")


def _cell(table: Table, estimate: Estimate | None, column: Column, best: bool) -> str:
    if estimate is None:
        return ""
    value = number(estimate.value, column.digits, column.signed)
    parts = [f"**{value}**" if best else value]
    if estimate.p is not None:
        parts = [f"{parts[0]}, {probability(estimate.p)}".replace("<", "&lt;")]
    spread = interval(estimate, column)
    if spread:
        parts.append(f"({spread})")
    if count := table.own_size(estimate, column):
        parts.append(f"[{count}]")
    return " ".join(parts)


def _text(text: str) -> str:
    """On one line, with the characters of Markdown and HTML markup escaped."""
    line = " ".join(text.split())
    for character, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        line = line.replace(character, written)
    for character in "\\`*_[]|":
        line = line.replace(character, "\\" + character)
    return line


def _code(text: str) -> str:
    """As code; a bar would end the table cell, and a backtick the code."""
    return "`" + " ".join(text.split()).replace("`", "'").replace("|", "\\|") + "`"
