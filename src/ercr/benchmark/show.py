"""A benchmark's document as Markdown and as plots; it measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def markdown(document: dict[str, Any]) -> str:
    """The tables of a document."""
    head = f"{document['model']}, {document['device']}, {document['dtype']}, grid {_grid(document['grid'])}, "
    head += f"{document['new_tokens']} new tokens; medians of {document['repeats']} turns."
    parts = [head, _rows(document["rows"])]
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
    return "\n\n".join(parts) + "\n"


def _grid(grid: list[int]) -> str:
    return f"{grid[0]} x {grid[1]}"


def _rows(rows: list[dict[str, Any]]) -> str:
    head = ("", "s / sample", "over public TAM", "over generate", "TFLOP", "peak GiB", "over generate", "passes")
    lines = [_line(head), "|" + "---|" * len(head)]
    for row in rows:
        cells = [row["name"], f"{row['seconds']:.4f}", f"{row['overhead']:.2f}", f"{row['over_generate']:.2f}"]
        cells += [_number(row.get("tflops"), 2), _number(row.get("memory_gb"), 2)]
        cells += [_number(row.get("memory_over_generate"), 3), _number(row.get("forwards"), 0)]
        lines.append(_line(cells))
    return "\n".join(lines)


def _bulk(rows: list[dict[str, Any]]) -> str:
    head = ("mode", "batch", "prepared before", "from pictures", "over public TAM", "peak GiB")
    lines = [_line(head), "|" + "---|" * len(head)]
    for row in rows:
        speeds = [_number(row["images_per_second"], 1), _number(row.get("from_pictures"), 1)]
        cells = [row["mode"], str(row["batch"]), *speeds, _number(row["over_public"], 1), _number(row["memory_gb"], 1)]
        lines.append(_line(cells))
    return "\n".join(lines)


def _growth(kind: str, rows: list[dict[str, Any]]) -> str:
    names = [name for name in rows[0] if name != "grid"]
    lines = [_line([name.replace("_", " ") for name in names]), "|" + "---|" * len(names)]
    lines += [_line([_cell(row.get(name)) for name in names]) for row in rows]
    return f"Growth with {kind}:\n\n" + "\n".join(lines)


def _cell(value: float | None) -> str:
    return str(value) if isinstance(value, int) else _number(value, 4)


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def plot(document: dict[str, Any], folder: Path) -> list[Path]:
    """Time and memory against what grows, one picture each; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    written = []
    for kind, rows in document.get("growth", {}).items():
        key = "tokens" if kind == "residual" else kind
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        for axis, what, unit in zip(axes, ("seconds", "memory_gb"), ("seconds", "peak GiB"), strict=True):
            for name, label in (("ercr_", "ERCR"), ("generate_", "plain generate"), ("", "PCR alone")):
                known = [(row[key], row[name + what]) for row in rows if row.get(name + what) is not None]
                if known:
                    axis.plot(*zip(*known, strict=True), "o-", label=label)
            axis.set(xlabel=_AXES[kind], ylabel=unit)
            axis.set_xscale("log", base=2)
            axis.set_ylim(bottom=0)
            axis.grid(alpha=0.3)
        axes[0].legend(frameon=False)
        figure.suptitle(f"{document['model']}, {document['device']}", fontsize=10)
        written.append(folder / f"growth-{kind}.png")
        figure.savefig(written[-1], dpi=130)
        plt.close(figure)
    return written


_AXES = {
    "answer": "tokens of the answer",
    "image": "visual tokens",
    "views": "views",
    "residual": "tokens of the answer",
}
