"""A benchmark's document as Markdown and as plots; it measures nothing."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from ercr.benchmark.rows import Document, Row
from ercr.files.writing import write_atomic

Points = list[tuple[float, float]]
_AXES = {
    "answer": "tokens of the answer",
    "image": "visual tokens",
    "views": "views",
    "residual": "tokens of the answer",
}
_BATCH = "batch size"
_PHOTOGRAPHS = {"sizes": "distinct sizes", "batch": _BATCH, "answer": "tokens of the answer"}
_KEYS = {"sizes": "sizes", "batch": "batch", "answer": "tokens"}
FILES = (
    *("benchmark.json", "benchmark.md", "bulk.png", "memory.png"),
    *(f"growth-{kind}.png" for kind in _AXES),
    *(f"photographs-{kind}.png" for kind in _PHOTOGRAPHS),
)
_UNITS = {"seconds": "seconds", "memory_gb": "peak GiB, weights included"}
_STYLES = (("#d55e00", "o-"), ("#0072b2", "s--"), ("#009e73", "^:"), ("#7a4fa3", "D-."))  # distinct also in greyscale


def markdown(document: Document) -> str:
    """The tables of a document."""
    head = f"{document['model']}, {document['device']}, {document['dtype']}, grid {_grid(document['grid'])}, "
    head += f"{document['new_tokens']} new tokens; medians of {document['repeats']} turns."
    parts = [head]
    if document.get("photographs"):
        parts += ["Photographs, from pictures in memory to explanations, ERCR:", _photographs(document["photographs"])]
    parts += ["One picture, from tensors:", _rows(document["rows"])]
    if document.get("bulk"):
        parts += ["Images a second, ERCR:", _bulk(document["bulk"])]
    for entry in document.get("prefill", []):
        took = (
            f"All passes over pictures and prompts, batch {entry['batch']}, {entry['mode']}: {entry['seconds']:.3f} s"
        )
        if entry["over_floor"] is not None:
            took += f", {entry['over_floor']:.2f} times what {entry['tflops']:.0f} TFLOP need at 790 TFLOP/s"
        parts.append(took + ".")
    if "streaming" in document:
        ratio = document["streaming"]
        parts.append(
            f"Between tokens: {1000 * ratio['generate']:.1f} ms plain, {1000 * ratio['stream']:.1f} ms with maps "
            f"({ratio['ratio']:.2f})."
        )
    if "same_tokens" in document:
        parts.append(f"Captured and eager said the same tokens: {'yes' if document['same_tokens'] else 'no'}.")
    parts += [_growth(kind, rows) for kind, rows in document.get("growth", {}).items()]
    parts += [_photograph_growth(kind, rows) for kind, rows in document.get("photographs_growth", {}).items()]
    return "\n\n".join(parts) + "\n"


def _photographs(rows: list[Row]) -> str:
    head = ("", "s / picture", "pictures / s", "times the public TAM code's speed", "peak GiB")
    lines = [_line(head), "|" + "---|" * len(head)]
    for row in rows:
        cells = [row["name"], f"{row['seconds']:.4f}", f"{1 / row['seconds']:.1f}", f"{row['over_public']:.1f}"]
        lines.append(_line([*cells, _number(row.get("memory_gb"), ".1f")]))
    return "\n".join(lines)


def _photograph_growth(kind: str, rows: list[Row]) -> str:
    key = _KEYS[kind]
    lines = [_line((_PHOTOGRAPHS[kind], "pictures / s", "peak GiB")), "|---|---|---|"]
    lines += [
        _line([str(row[key]), f"{row['pictures_per_second']:.1f}", _number(row["memory_gb"], ".1f")]) for row in rows
    ]
    return f"Photographs by {_PHOTOGRAPHS[kind]}:\n\n" + "\n".join(lines)


def _grid(grid: list[int]) -> str:
    return f"{grid[0]} x {grid[1]}"


def _rows(rows: list[Row]) -> str:
    head = ("", "s / sample", "over public TAM", "over generate", "TFLOP", "peak GiB", "over generate", "passes")
    lines = [_line(head), "|" + "---|" * len(head)]
    for row in rows:
        cells = [row["name"], f"{row['seconds']:.4f}", f"{row['overhead']:.2f}", f"{row['over_generate']:.2f}"]
        # operations: thousandths of a TFLOP for a packaged model, tens for a large one
        cells += [_number(row.get("tflops"), ".3g"), _number(row.get("memory_gb"), ".2f")]
        cells += [_number(row.get("memory_over_generate"), ".3f"), _number(row.get("forwards"), ".0f")]
        lines.append(_line(cells))
    return "\n".join(lines)


def _bulk(rows: list[Row]) -> str:
    head = ("mode", "batch", "prepared before", "from pictures", "over public TAM", "peak GiB")
    lines = [_line(head), "|" + "---|" * len(head)]
    for row in rows:
        speeds = [_number(row["images_per_second"], ".1f"), _number(row.get("from_pictures"), ".1f")]
        cells = [
            row["mode"],
            str(row["batch"]),
            *speeds,
            _number(row["over_public"], ".1f"),
            _number(row["memory_gb"], ".1f"),
        ]
        lines.append(_line(cells))
    return "\n".join(lines)


def _growth(kind: str, rows: list[Row]) -> str:
    names = [name for name in rows[0] if name != "grid"]
    lines = [_line([name.replace("_", " ") for name in names]), "|" + "---|" * len(names)]
    lines += [_line([_cell(row.get(name)) for name in names]) for row in rows]
    return f"Growth with {kind}:\n\n" + "\n".join(lines)


def _cell(value: float | str | None) -> str:
    return str(value) if isinstance(value, int | str) else _number(value, ".4f")


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def plot(document: Document, folder: Path) -> list[Path]:
    """Speed by batch size, then time and memory against what grows, one picture each; needs matplotlib."""
    title = f"{document['model']}, {document['device']}"
    written = []
    if len(document.get("bulk", [])) > 1:
        written.append(_draw(folder / "bulk.png", title, _BATCH, _bulk_panels(document["bulk"])))
    for kind, rows in document.get("growth", {}).items():
        panels = {unit: _growth_lines(kind, rows, what) for what, unit in _UNITS.items()}
        panels = dict(_readable(unit, lines) for unit, lines in panels.items())
        written.append(_draw(folder / f"growth-{kind}.png", title, _AXES[kind], panels))
    for kind, rows in document.get("photographs_growth", {}).items():
        points = [(row[_KEYS[kind]], row["pictures_per_second"]) for row in rows]
        memory = [(row[_KEYS[kind]], row["memory_gb"]) for row in rows if row["memory_gb"] is not None]
        panels = {"pictures a second": {"ERCR": points}, _UNITS["memory_gb"]: {"ERCR": memory} if memory else {}}
        written.append(_draw(folder / f"photographs-{kind}.png", title, _PHOTOGRAPHS[kind], panels))
    if document.get("memory"):
        kinds = {"memory_gb": "device, peak of the last pictures", "process_gb": "process"}
        lines = {
            label: [(row["pictures"], row[name]) for row in document["memory"] if row[name] is not None]
            for name, label in kinds.items()
        }
        shown = {"GiB": {label: points for label, points in lines.items() if points}}
        written.append(_draw(folder / "memory.png", title, "pictures explained", shown))
    return written


def _bulk_panels(rows: list[Row]) -> dict[str, dict[str, Points]]:
    speed: dict[str, Points] = {}
    memory: dict[str, Points] = {}
    for name, label in (("images_per_second", "prepared before"), ("from_pictures", "from pictures")):
        for row in rows:
            if row.get(name) is not None:
                speed.setdefault(f"{row['mode']}, {label}", []).append((row["batch"], row[name]))
    for row in rows:
        if row["memory_gb"] is not None:
            memory.setdefault(row["mode"], []).append((row["batch"], row["memory_gb"]))
    return {"images a second": speed, _UNITS["memory_gb"]: memory}


def _growth_lines(kind: str, rows: list[Row], what: str) -> dict[str, Points]:
    key = "tokens" if kind == "residual" else kind
    lines: dict[str, Points] = {}
    for row in rows:
        names = {"ercr_": "ERCR" if row.get("mode", "eager") == "eager" else f"ERCR, {row['mode']}"}
        for name, label in {**names, "generate_": "plain generate", "": "PCR alone"}.items():
            if row.get(name + what) is not None:
                lines.setdefault(label, []).append((row[key], row[name + what]))
    return lines


def _readable(unit: str, lines: dict[str, Points]) -> tuple[str, dict[str, Points]]:
    """Milliseconds instead of seconds for short times."""
    if unit != _UNITS["seconds"] or max((y for points in lines.values() for _, y in points), default=1.0) >= 0.1:
        return unit, lines
    return "milliseconds", {label: [(x, 1000 * y) for x, y in points] for label, points in lines.items()}


def _draw(path: Path, title: str, across: str, panels: dict[str, dict[str, Points]]) -> Path:
    """One panel per unit, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    known = {unit: lines for unit, lines in panels.items() if lines}
    figure, axes = plt.subplots(1, len(known), figsize=(4.6 * len(known), 3.3), layout="constrained", squeeze=False)
    for axis, (unit, lines) in zip(axes[0], known.items(), strict=True):
        for (label, points), (colour, style) in zip(lines.items(), _STYLES, strict=False):
            axis.plot(*zip(*points, strict=True), style, color=colour, label=label, markersize=5)
        if across == _BATCH:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        axis.set(xlabel=across, ylabel=unit)
        axis.set_ylim(0, 1.25 * max(y for points in lines.values() for _, y in points))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle(title, fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, facecolor="white")
    write_atomic(path, buffer.getvalue())
    plt.close(figure)
    return path
