"""Explanations as files that a visitor can view and download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ercr.explanation import Explanation, Word
from ercr.image.clips import LoadedClip
from ercr.image.gallery import Gallery
from ercr.image.geometry import Floats, Geometry
from ercr.image.images import LoadedImage
from ercr.render.compare import compare
from ercr.web.pictures import answer_picture

REPORT, FRAMED = "report.html", "framed.html"
_PICTURE_SIDE = 1600  # pixels


def write_report(explanations: Sequence[Explanation], place: Path) -> Path:
    """Write the self-contained page."""
    compare(explanations, strongest_word(explanations[0])).to_html(place / REPORT)
    return place / REPORT


def write_all(explanations: Sequence[Explanation], place: Path) -> list[tuple[str, str]]:
    """Write report, saved explanations and pictures; returns the downloads as (label, file name)."""
    report = write_report(explanations, place).read_text(encoding="utf-8")
    # the same document without its heading; changed as text, because rendering again would encode the picture again
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
    """Bytes to reserve for the files of an answer."""
    maps = sum(explanation.maps.size for explanation in explanations)
    pictures = sum(_bytes(item) for explanation in explanations for item in explanation.media)
    return 2_000_000 + 8 * maps + 2 * pictures


def _bytes(item: LoadedImage | LoadedClip) -> int:
    """Of a picture's file; of a clip, as many as its frames may take without loss."""
    if isinstance(item, LoadedImage):
        return len(item.to_bytes())
    return 2 * len(item.frames) * item.size[0] * item.size[1]


def strongest_word(explanation: Explanation) -> Word | None:
    """The word at which the report opens: the best seen, or the strongest."""
    return max(explanation.words, key=lambda word: (word.tint, word.strength), default=None)


def words(explanations: Sequence[Explanation]) -> list[dict[str, Any]]:
    """The answer's words as plain data with their maps; for several methods, maps and evidence by method."""
    first = explanations[0]
    by_name = {str(e.provenance["method"]): e.words for e in explanations}

    def by_method(index: int, read: Callable[[Word], Any]) -> Any:
        found = {name: read(of_method[index]) for name, of_method in by_name.items()}
        return found if len(explanations) > 1 else next(iter(found.values()))

    return [
        {
            "text": word.text,
            "probability": round(word.probability, 4),
            "evidence": by_method(i, lambda word: round(word.evidence, 4)),
            "strength": by_method(i, lambda word: round(word.strength, 4)),
            "share": by_method(i, lambda word: round(word.share, 4)),
            "grounding": None if word.grounding is None else word.grounding.to_dict(),
            **_maps(first, lambda read, index=i: by_method(index, read)),  # type: ignore[misc]
        }
        for i, word in enumerate(first.words)
    ]


def _maps(first: Explanation, by_method: Callable[[Callable[[Word], Any]], Any]) -> dict[str, Any]:
    """A word's map and where its cells lie; of several pictures and clips, lists with one of each."""
    # all methods read the same cells
    places = [_place(piece.geometry) for piece in first.pieces]
    if not isinstance(first.image, Gallery):
        return {"map": by_method(lambda word: _rounded(word.map)), **places[0]}
    return {
        "maps": by_method(lambda word: [_rounded(map_) for map_ in word.maps]),
        "where": by_method(lambda word: [asdict(place) for place in word.where()]),
        **{f"{name}es" if name == "box" else name: [place[name] for place in places] for name in places[0]},
    }


def _place(geometry: Geometry) -> dict[str, list[float]]:
    rows, columns = ([round(float(at), 2) for at in places] for places in geometry.canvas.centres)
    return {"box": [round(side, 2) for side in geometry.box], "row_centres": rows, "column_centres": columns}


def _rounded(map_: Floats) -> list[Any]:
    """A map's rows of cells, from the top; of a clip one such list for each slice."""
    rounded: list[Any] = np.round(map_.astype(np.float64), 4).tolist()
    return rounded
