"""A report for the terminal: tables that fit the window, the best results bold, the paper's numbers below ours."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ercr.report.document import Column, Estimate, Report, Table, beside, interval, number, probability


def show(report: Report, console: Console) -> None:
    """Print everything but the plots."""
    for warning in report.warnings:
        console.print(Text(f"note: {warning}", "yellow"))
    for section in report.sections:
        console.rule(Text(section.title, "bold"), align="left", style="dim")
        for table in section.tables:
            _show_table(table, console)
    if report.missing:
        console.rule(Text("Not measured", "bold"), align="left", style="dim")
        for item in report.missing:
            console.print(Text.assemble(item.title + ": ", (item.command, "cyan")), soft_wrap=True)


def _show_table(table: Table, console: Console) -> None:
    console.print(Text(table.title, "bold"))
    for fact in table.facts:
        console.print(Text(fact, "dim"))
    for name, part in _fitting(table, console):
        if name:
            console.print(Text(name, "italic"))
        console.print(part)
    for note in table.notes:
        console.print(Text(note, "dim"))
    console.print()


def _fitting(table: Table, console: Console) -> list[tuple[str, RichTable]]:
    """One table if it fits; else one per group of columns; else these with intervals below the numbers."""
    split = [(name, table.of_group(name)) for name, _ in table.groups()] if len(table.groups()) > 1 else [("", table)]
    for parts, stacked in (([("", table)], False), (split, False), (split, True)):
        drawn = [(name, _draw(part, stacked)) for name, part in parts]
        if stacked or all(_width(part, console) <= console.width for _, part in drawn):
            break
    return drawn


def _width(table: RichTable, console: Console) -> int:
    return console.measure(table, options=console.options.update(width=10_000)).maximum


def _draw(table: Table, stacked: bool) -> RichTable:
    drawn = RichTable(box=box.HORIZONTALS, header_style="", pad_edge=False, collapse_padding=True, border_style="dim")
    for head in table.heads:
        drawn.add_column(head, overflow="fold")
    several = len(table.groups()) > 1
    for column in table.columns:
        group = Text(f"{column.group}\n" if several else "", "dim")
        count = table.column_size(column)
        drawn.add_column(
            Text.assemble(group, column.label, (f"\n{count}" if count else "", "not bold dim")),
            justify="right",
            no_wrap=True,
        )
    best = table.best()
    for index, (row, shown) in enumerate(zip(table.rows, table.shown_heads(), strict=True)):
        style = "cyan" if row.ours else ""
        heads = [Text(head, style) for head in shown]
        if row.detail:
            heads[-1] = Text.assemble(heads[-1], (f"\n{row.detail}", "dim"))
        cells = [_cell(table, row.cells.get(c.key), c, (index, c.key) in best, stacked) for c in table.columns]
        last = index + 1 == len(table.rows) or table.rows[index + 1].block != row.block
        drawn.add_row(*heads, *cells, end_section=last)
    return drawn


def _cell(table: Table, estimate: Estimate | None, column: Column, best: bool, stacked: bool) -> Text:
    if estimate is None:
        return Text("")
    text = Text(number(estimate.value, column.digits, column.signed), "bold" if best else "")
    if estimate.p is not None:
        text.append(f", {probability(estimate.p)}", "not bold")
    spread = interval(estimate, column)
    if spread:
        text.append(("\n" if stacked or estimate.p is not None else " ") + f"({spread})", "not bold dim")
    if count := table.own_size(estimate, column):
        text.append(f"\n{count}", "not bold dim")
    if estimate.paper is not None:
        text.append(f"\n◇ {beside(estimate, column)}", "not bold magenta")
    return text
