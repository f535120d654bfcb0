"""One self-contained page per explanation: the image, the words, and each word's map over the image.

No network, no fonts, no libraries. Everything a user or a model wrote is escaped; the data travels as JSON in an
inert script element.
"""

from __future__ import annotations

import base64
import html
import io
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ercr.geometry import Floats
from ercr.render.colormaps import names, table

if TYPE_CHECKING:
    from ercr.explanation import Explanation, Word

_MAX_SIDE = 1280  # of the picture in the page
_CONTEXT_WORDS = 12


def page(explanation: Explanation, word: Word | None = None) -> str:
    """A whole HTML document, opened at a word."""
    title = html.escape(explanation.text[:80] or "ercr")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"></head>'
        f'<body class="ercr-page">{fragment(explanation, word)}</body></html>\n'
    )


def fragment(explanation: Explanation, word: Word | None = None) -> str:
    """The same as a piece of HTML that a notebook or another page can hold."""
    assets = files("ercr.render") / "assets"
    style = (assets / "report.css").read_text(encoding="utf-8")
    script = (assets / "report.js").read_text(encoding="utf-8")
    # "<" could end the script element early, whatever the prompt says
    data = json.dumps({**_data(explanation), "open": _index(explanation, word)}, ensure_ascii=False).replace(
        "<", "\\u003c"
    )
    return (
        f"<style>{style}</style>"
        f'<section class="ercr" aria-label="Image evidence for each word">'
        f'<script type="application/json" class="ercr-data">{data}</script>'
        f"<noscript>{html.escape(explanation.text)}</noscript></section>"
        f"<script>{script}</script>"
    )


def _data(explanation: Explanation) -> dict[str, Any]:
    left, top, right, bottom = explanation.geometry.box
    height, width = explanation.geometry.size
    provenance = explanation.provenance
    return {
        "image": _picture(explanation.image.rgb),
        "size": [width, height],
        "grid": list(explanation.geometry.grid),
        "box": [left / width, top / height, right / width, bottom / height],
        "seen": explanation.seen,
        "model": provenance.get("model"),
        "method": provenance.get("method"),
        "answer": provenance.get("answer"),
        "colormaps": {name: _encode(table(name).ravel()) for name in names()},
        "prompt": [_word(explanation, word) for word in explanation.prompt_words],
        "words": [_word(explanation, word) for word in explanation.words],
    }


def _word(explanation: Explanation, word: Word) -> dict[str, Any]:
    first = word.tokens[0]
    return {
        "text": word.text,
        "space": first.text[:1].isspace(),
        "map": _levels(word.map),
        "evidence": round(word.evidence, 4),
        "p": round(word.probability, 5),
        "candidates": [[c.text, round(c.probability, 5)] for c in first.candidates],
        **_context(explanation, first.row),
    }


def _index(explanation: Explanation, word: Word | None) -> int | None:
    """The word's place in the answer, if it is a word of it."""
    rows = None if word is None else word.tokens[0].row
    return next((i for i, w in enumerate(explanation.words) if w.tokens[0].row == rows), None)


def _context(explanation: Explanation, row: int) -> dict[str, Any]:
    """What was subtracted from a word: the fit, and the heaviest of the earlier tokens."""
    if explanation.alpha is None or explanation.beta is None:
        return {}
    alpha = explanation.alpha[row]
    heaviest = [int(j) for j in np.argsort(-alpha, kind="stable")[:_CONTEXT_WORDS] if alpha[j] > 0]
    listed = [[explanation.text_tokens[j].text, round(float(alpha[j]), 4)] for j in heaviest]
    return {"beta": round(float(explanation.beta[row]), 4), "context": listed}


def _levels(map_: Floats) -> str:
    return _encode(np.clip(map_ * 255 + 0.5, 0, 255).astype(np.uint8).ravel())


def _encode(values: Any) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _picture(image: Image.Image) -> str:
    small = image.copy()
    small.thumbnail((_MAX_SIDE, _MAX_SIDE))
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
