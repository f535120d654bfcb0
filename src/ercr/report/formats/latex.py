"""A report as LaTeX: a complete document, with booktabs tables to copy from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ercr.report.document import Column, Estimate, Report, Row, Table, beside, interval, number, probability

_SPECIAL = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "–": "--",
    "−": "$-$",
    "×": r"$\times$",
    "…": r"\dots{}",
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "Δ": r"$\Delta$",
    "◇": r"$\diamond$",
    "’": "'",
    "“": "``",
    "”": "''",
}
_HEAD = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,graphicx,xcolor}
\newcommand{\below}[1]{{\scriptsize\color{gray}#1}}
\begin{document}
"""
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"  # shrunk to the page's width, never enlarged


def render(report: Report, plots: bool = False) -> str:
    """The whole document; with `plots`, plots are included from the report's folder."""
    parts = [_HEAD]
    parts += [f"\\paragraph{{Note.}} {escape(warning)}\n" for warning in report.warnings]
    for section in report.sections:
        parts.append(f"\\section*{{{escape(section.title)}}}\n{escape(section.text)}\n")
        parts += [render_table(table) for table in section.tables]
        if plots:
            parts += [_figure(plot.key, plot.title) for plot in section.plots]
    if report.missing:
        items = [f"\\item {escape(m.title)}: \\texttt{{{escape(m.command)}}}" for m in report.missing]
        parts.append("\\section*{Not measured}\n\\begin{itemize}\n" + "\n".join(items) + "\n\\end{itemize}\n")
    return "\n".join(parts) + "\\end{document}\n"


def render_table(table: Table) -> str:
    """One `table` environment; intervals and the paper's numbers are grey lines below each row."""
    layout = "l" * len(table.heads) + "r" * len(table.columns)
    lines = [
        "\\begin{table}[!htbp]\n\\centering\\small\\setlength{\\tabcolsep}{4pt}",
        f"\\caption{{{escape(_caption(table))}}}\n\\label{{tab:{table.key}}}",
        f"{_FIT}\n\\begin{{tabular}}{{{layout}}}\n\\toprule",
        *_heads(table),
        "\\midrule",
    ]
    best, heads = table.best(), table.shown_heads()
    for index, row in enumerate(table.rows):
        if index and table.rows[index - 1].block != row.block:
            lines.append("\\midrule")
        lines += _row(table, row, heads[index], {key for at, key in best if at == index})
    lines.append("\\bottomrule\n\\end{tabular}}\n\\end{table}\n")
    return "\n".join(lines)


def _caption(table: Table) -> str:
    return " ".join(f"{part.rstrip('.')}." for part in (table.title, *table.facts, *table.notes))


def _heads(table: Table) -> list[str]:
    names = [escape(head) for head in table.heads] + [escape(column.label) for column in table.columns]
    groups = table.groups()
    counts = [table.column_size(column) for column in table.columns]
    small = [f"\\below{{{escape(count)}}}" if count else "" for count in counts]
    named = [
        " & ".join(names) + r" \\",
        *([" & ".join([*[""] * len(table.heads), *small]) + r" \\"] if any(small) else []),
    ]
    if not any(name for name, _ in groups):
        return named
    start, above, rules = len(table.heads) + 1, [""] * len(table.heads), []
    for name, columns in groups:
        above.append(f"\\multicolumn{{{len(columns)}}}{{c}}{{{escape(name)}}}")
        if name:
            rules.append(f"\\cmidrule(lr){{{start}-{start + len(columns) - 1}}}")
        start += len(columns)
    return [" & ".join(above) + r" \\", " ".join(rules), *named]


def _row(table: Table, row: Row, shown: Sequence[str], best: set[str]) -> list[str]:
    """A line of numbers and, in grey below it, lines with their intervals, sample sizes and the paper's numbers."""
    heads = [escape(head) for head in shown]
    if row.detail:
        heads[-1] += f" {{\\scriptsize\\texttt{{{escape(row.detail)}}}}}"
    pairs = [(row.cells.get(column.key), column) for column in table.columns]
    values = ["" if estimate is None else _value(estimate, column, column.key in best) for estimate, column in pairs]
    lines = [" & ".join(heads + values)]
    below: list[tuple[str, Callable[[Estimate, Column], str]]] = [
        ("", interval),
        ("", table.own_size),
        ("paper", beside),
    ]
    for name, tell in below:
        told = ["" if estimate is None else tell(estimate, column) for estimate, column in pairs]
        if any(told):
            label = f"\\quad\\below{{{name}}}" if name else ""
            cells = [f"\\below{{{escape(text)}}}" if text else "" for text in told]
            lines.append(" & ".join([*[""] * (len(heads) - 1), label, *cells]))
    return [*(line + r" \\" for line in lines[:-1]), lines[-1] + r" \\[2pt]"]


def _value(estimate: Estimate, column: Column, best: bool) -> str:
    value = escape(number(estimate.value, column.digits, column.signed))
    tested = "" if estimate.p is None else f", {escape(probability(estimate.p))}"
    return (f"\\textbf{{{value}}}" if best else value) + tested


def _figure(key: str, title: str) -> str:
    return (
        f"\\begin{{figure}}[!htbp]\n\\centering\n\\includegraphics[width=.8\\linewidth]{{plots/{key}.pdf}}\n"
        f"\\caption{{{escape(title)}}}\n\\end{{figure}}\n"
    )


def escape(text: str) -> str:
    """Text escaped for LaTeX; characters that its fonts may lack become question marks."""
    line = " ".join(text.split())
    return "".join(_SPECIAL.get(c) or (c if c.isascii() or "\u00c0" <= c <= "\u017e" else "?") for c in line)
