"""Explanations as the files a visitor can see and keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ercr.explanation import Explanation, Word
from ercr.render.compare import compare
from ercr.web.pictures import answer_picture

REPORT, FRAMED = "report.html", "framed.html"
_PICTURE_SIDE = 1600  # pixels


def write_report(explanations: Sequence[Explanation], place: Path) -> Path:
    """The self-contained page."""
    compare(explanations, strongest(explanations[0])).to_html(place / REPORT)
    return place / REPORT


def write_all(explanations: Sequence[Explanation], place: Path) -> list[tuple[str, str]]:
    """Report, saved explanations and pictures; what there is to download as (label, file name)."""
    report = write_report(explanations, place).read_text(encoding="utf-8")
    # the same document without its heading: making it a second time would encode the picture a second time
    (place / FRAMED).write_text(report.replace('<body class="whole">', '<body class="framed">', 1), encoding="utf-8")
    files = [("Report (HTML)", REPORT)]
    for explanation in explanations:
        method = str(explanation.provenance["method"])
        which = f" by {method}" if len(explanations) > 1 else ""
        tail = f"-{method}" if len(explanations) > 1 else ""
        explanation.save(place / f"explanation{tail}.ercr")
        answer_picture(explanation, _PICTURE_SIDE).save(place / f"evidence{tail}.png", compress_level=3)
        files += [(f"Data{which} (.ercr)", f"explanation{tail}.ercr"), (f"Picture{which} (PNG)", f"evidence{tail}.png")]
    return files


def likely_size(explanations: Sequence[Explanation]) -> int:
    """Bytes to keep free for the files of an answer."""
    maps = sum(explanation.maps.size for explanation in explanations)
    pictures = sum(len(explanation.image.to_bytes()) for explanation in explanations)
    return 2_000_000 + 8 * maps + 2 * pictures


def strongest(explanation: Explanation) -> Word | None:
    """The word to open a report at."""
    return max(explanation.words, key=lambda word: word.evidence, default=None)


def words(explanations: Sequence[Explanation]) -> list[dict[str, Any]]:
    """The answer's words as plain data, with their maps; of several methods, each one's by its name."""
    first = explanations[0]
    box = [round(side, 2) for side in first.geometry.box]  # all methods read the same cells
    by_name = {str(e.provenance["method"]): e.words for e in explanations}

    def told(index: int, read: Callable[[Word], Any]) -> Any:
        found = {name: read(spoken[index]) for name, spoken in by_name.items()}
        return found if len(explanations) > 1 else next(iter(found.values()))

    return [
        {
            "text": word.text,
            "probability": round(word.probability, 4),
            "evidence": told(i, lambda each: round(each.evidence, 4)),
            "map": told(i, _rows),
            "box": box,
        }
        for i, word in enumerate(first.words)
    ]


def _rows(word: Word) -> list[list[float]]:
    """A map's rows of cells, from above."""
    rows: list[list[float]] = np.round(word.map.astype(np.float64), 4).tolist()
    return rows
