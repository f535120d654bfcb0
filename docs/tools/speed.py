"""Write the GPU tables of `speed.md` and draw its plots, from the benchmark documents in `docs/tables`.

    python docs/tools/speed.py

Only what stands between the marks is replaced. A ratio is made of two figures of one run, never of two runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from ercr.benchmark.rows import PLAIN, PUBLIC
from ercr.benchmark.show import plot

DOCS = Path(__file__).resolve().parents[1]
PAGE, FOLDER = DOCS / "speed.md", DOCS / "images" / "speed"
_MARK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SHOWN = {"cam": "`cam`", "tam": "`tam`", "CAM, compiled": "CAM, captured", "ERCR, compiled": "ERCR, captured"}
_COLOURS = 128  # of a plot: half the bytes, and letters stay sharp
Row = dict[str, Any]


def run(number: int) -> Row:
    """The document of one run, as `ercr benchmark` wrote it."""
    return dict(json.loads((DOCS / "tables" / f"speed-h200-run{number}.json").read_text(encoding="utf-8")))


def page(text: str) -> str:
    """The page with the tables of the documents."""
    return _MARK.sub(lambda found: f"{found[1]}{_TABLES[found[2]]()}\n{found[3]}", text)


def rows() -> str:
    """All rows of run 2, each over the public code and over generating alone in the same mode."""
    head = ("", "seconds", "fastest to slowest", "over TAM code", "over generate", "peak GiB", "memory over generate")
    return _table(
        head,
        (
            [
                _name(row),
                f"{row['seconds']:.3f}",
                _spread(row),
                f"{row['overhead']:.3f}",
                f"{row['over_generate']:.2f}",
                f"{row['memory_gb']:.2f}",
                f"{row['memory_over_generate']:.3f}",
            ]
            for row in run(2)["rows"]
        ),
    )


def first() -> str:
    """Rows of run 1 over its own public code; its plain generation is older and left out."""
    kept = [row for row in run(1)["rows"] if row["name"] != PLAIN]
    lines = ([_name(row), f"{row['seconds']:.3f}", _spread(row), f"{row['overhead']:.3f}"] for row in kept)
    return _table(("", "seconds", "fastest to slowest", "over TAM code"), lines)


def prefill() -> str:
    head = ("run", "mode", "batch", "seconds", "TFLOP", "over the floor")
    entries = [(number, entry) for number in (1, 2) for entry in run(number)["prefill"]]
    return _table(
        head,
        (
            [str(n), e["mode"], str(e["batch"]), f"{e['seconds']:.2f}", f"{e['tflops']:.0f}", f"{e['over_floor']:.2f}"]
            for n, e in entries
        ),
    )


def bulk() -> str:
    """Images a second; only with pictures prepared before is it the same work as the row it is set against."""
    head = ("run", "mode", "batch", "prepared before", "over TAM code", "from pictures", "peak GiB")
    lines = []
    for number in (1, 2):
        document = run(number)
        public = next(row["seconds"] for row in document["rows"] if row["name"] == PUBLIC)
        for row in document["bulk"]:
            speeds = (row["images_per_second"], row["images_per_second"] * public, row["from_pictures"])
            shown = [f"{speed:.1f}" for speed in (*speeds, row["memory_gb"])]
            lines.append([str(number), row["mode"], str(row["batch"]), *shown])
    return _table(head, lines)


def images() -> str:
    head = ("visual tokens", "ERCR, s", "generate, s", "ERCR, GiB", "generate, GiB")
    return _growth("image", head, ("ercr_seconds", "generate_seconds", "ercr_memory_gb", "generate_memory_gb"))


def views() -> str:
    return _growth("views", ("views", "ERCR, s", "ERCR, GiB"), ("ercr_seconds", "ercr_memory_gb"))


def answers() -> str:
    head = ("tokens of the answer", "ERCR captured, s", "ERCR captured, GiB")
    return _growth("answer", head, ("ercr_seconds", "ercr_memory_gb"))


def residual() -> str:
    lines = ([str(r["tokens"]), f"{1000 * r['seconds']:.1f}"] for r in run(3)["growth"]["residual"])
    return _table(("tokens of the answer", "PCR alone, ms"), lines)


def _growth(kind: str, head: Sequence[str], keys: Sequence[str]) -> str:
    digits = {key: 2 if key.endswith("gb") else 3 for key in keys}
    return _table(
        head, ([str(row[kind]), *(f"{row[key]:.{digits[key]}f}" for key in keys)] for row in run(3)["growth"][kind])
    )


def _name(row: Row) -> str:
    return str(_SHOWN.get(row["name"], row["name"]))


def _spread(row: Row) -> str:
    return f"{row['spread'][0]:.3f} to {row['spread'][1]:.3f}"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines))


def draw() -> list[Path]:
    """Run 3's growth, and the bulk figures of the first two runs."""
    document = run(3)
    document["bulk"] = run(1)["bulk"] + run(2)["bulk"]
    document |= {"model": "Qwen2-VL-2B's shape, random weights", "device": "one H200"}
    FOLDER.mkdir(exist_ok=True)
    written = plot(document, FOLDER)
    for path in written:
        with Image.open(path) as picture:
            few = picture.convert("RGB").quantize(_COLOURS)
        few.save(path, optimize=True)
    return written


_TABLES: dict[str, Callable[[], str]] = {
    table.__name__: table for table in (rows, first, prefill, bulk, images, views, answers, residual)
}

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for path in (PAGE, *draw()):
        print(f"wrote {path.relative_to(DOCS.parent)}")
