"""A report as one self-contained page: no network, no fonts, no scripts. All text from runs is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from ercr.report.document import Column, Estimate, Plot, Report, Section, Table, beside, interval, number, probability


def render(report: Report, pictures: Mapping[str, str] | None = None) -> str:
    """The page; `pictures` holds the plots as SVG by their keys."""
    style = (files("ercr.report") / "assets" / "report.css").read_text(encoding="utf-8")
    body = [
        f'<header><h1>{_escape(_title(report))}</h1><p class="soft">Made by ercr {_escape(report.version)}. Numbers '
        "in parentheses are bootstrap 95 % confidence intervals over images.</p></header>",
        *(f'<p class="warning" role="note">{_escape(warning)}</p>' for warning in report.warnings),
        _runs(report),
        _contents(report),
        *(_section(section, pictures or {}) for section in report.sections),
        _missing(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{_escape(_title(report))}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><style>{style}</style></head>'
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _title(report: Report) -> str:
    names = list(dict.fromkeys(str(run["title"]) for run in report.runs))
    return "Image evidence" + (f": {', '.join(names)}" if 0 < len(names) < 4 else "")


def _runs(report: Report) -> str:
    """What was read, one card per run."""
    cards = []
    for run in report.runs:
        counts = f"{run['images']:,} of {run['samples']:,}" if not run["finished"] else f"{run['images']:,}"
        known = {
            "model": run["model"],
            "dataset": run["dataset"],
            "images": f"{counts}, {run['failed']:,} failed, {run['left_out']:,} left out",
            "protocol": run["protocol"],
            "tagger": run["tagger"],
            "answers": run["answers"],
        }
        facts = "".join(f"<dt>{name}</dt><dd>{_escape(value)}</dd>" for name, value in known.items() if value)
        state = "" if run["finished"] else ' <span class="unfinished">unfinished</span>'
        cards.append(f"<article><h2>{_escape(run['path'])}{state}</h2><dl>{facts}</dl>{_details(run)}</article>")
    return f'<section class="runs" aria-label="Runs">{"".join(cards)}</section>'


def _details(run: Mapping[str, Any]) -> str:
    lists = {
        f"methods ({len(run['methods'])})": run["methods"],
        "versions": [f"{name} {version}" for name, version in run["versions"].items()],
        "why images have no score": [f"{count:,} × {reason}" for reason, count in run["reasons"].items()],
    }
    return "".join(
        f"<details><summary>{name}</summary><ul>{''.join(f'<li>{_escape(item)}</li>' for item in items)}</ul></details>"
        for name, items in lists.items()
        if items
    )


def _contents(report: Report) -> str:
    links = [f'<a href="#{_escape(s.key)}">{_escape(s.title)}</a>' for s in report.sections]
    if report.missing:
        links.append('<a href="#missing">Not measured</a>')
    return f'<nav aria-label="Contents">{"".join(links)}</nav>'


def _section(section: Section, pictures: Mapping[str, str]) -> str:
    plots = [_plot(plot, pictures[plot.key]) for plot in section.plots if plot.key in pictures]
    shown = f'<div class="plots">{"".join(plots)}</div>' if plots else ""
    tables = "".join(render_table(table) for table in section.tables)
    return (
        f'<section id="{_escape(section.key)}"><h2>{_escape(section.title)}</h2>'
        f"<p>{_escape(section.text)}</p>{tables}{shown}</section>"
    )


def _plot(plot: Plot, picture: str) -> str:
    """The SVG is our own; only its title can hold text from a run, and is escaped."""
    return (
        f'<figure><div role="img" aria-label="{_escape(plot.title)}">{picture}</div>'
        f"<figcaption>{_escape(plot.title)}</figcaption></figure>"
    )


def render_table(table: Table) -> str:
    facts = "".join(f"<span>{_escape(fact)}</span>" for fact in table.facts)
    notes = "".join(f'<p class="soft">{_escape(note)}</p>' for note in table.notes)
    best = table.best()
    rows, block = [], table.rows[0].block if table.rows else ""
    for index, (row, shown) in enumerate(zip(table.rows, table.shown_heads(), strict=True)):
        classes = " ".join(["ours"] * row.ours + ["block"] * (row.block != block))
        block = row.block
        heads = [f'<th scope="row">{_escape(head)}</th>' for head in shown[:-1]]
        detail = f"<code>{_escape(row.detail)}</code>" if row.detail else ""
        heads.append(f'<th scope="row" class="name">{_escape(row.heads[-1])}{detail}</th>')
        cells = [_cell(table, row.cells.get(c.key), c, (index, c.key) in best) for c in table.columns]
        rows.append(f'<tr class="{classes}">{"".join(heads + cells)}</tr>')
    return (
        f'<div class="table"><h3>{_escape(table.title)}</h3><p class="facts">{facts}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_escape(table.title)}"><table>'
        f"<thead>{_heads(table)}</thead><tbody>{''.join(rows)}</tbody></table></div>{notes}</div>"
    )


def _heads(table: Table) -> str:
    groups = table.groups()
    grouped = any(name for name, _ in groups)
    span = ' rowspan="2"' if grouped else ""
    last = len(table.heads) - 1
    heads = "".join(
        f'<th scope="col"{span} class="head{" name" if i == last else ""}">{_escape(head)}</th>'
        for i, head in enumerate(table.heads)
    )
    names = "".join(f'<th scope="col">{_escape(c.label)}{_small(table.column_size(c))}</th>' for c in table.columns)
    if not grouped:
        return f"<tr>{heads}{names}</tr>"
    above = "".join(
        f'<th scope="colgroup" colspan="{len(columns)}" class="group">{_escape(name)}</th>' for name, columns in groups
    )
    return f"<tr>{heads}{above}</tr><tr>{names}</tr>"


def _small(text: str) -> str:
    return f"<small>{_escape(text)}</small>" if text else ""


def _cell(table: Table, estimate: Estimate | None, column: Column, best: bool) -> str:
    if estimate is None:
        return '<td class="none">–</td>'
    value = number(estimate.value, column.digits, column.signed)
    parts = [f"<b>{value}</b>" if best else f"<span>{value}</span>"]
    if estimate.p is not None:
        parts.append(f"<span>, {_escape(probability(estimate.p))}</span>")
    spread = interval(estimate, column)
    parts.append(_small(spread and f"({spread})") + _small(table.own_size(estimate, column)))
    if estimate.paper is not None:
        parts.append(f'<small class="paper" title="paper">◇ {beside(estimate, column)}</small>')
    return f"<td>{''.join(parts)}</td>"


def _missing(report: Report) -> str:
    if not report.missing:
        return ""
    items = "".join(f"<li>{_escape(m.title)}<code>{_escape(m.command)}</code></li>" for m in report.missing)
    return f'<section id="missing"><h2>Not measured</h2><ul class="missing">{items}</ul></section>'


def _escape(text: Any) -> str:
    return html.escape(str(text))
