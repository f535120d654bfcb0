"""From explanations to rows of an album, and from a row back to maps; reads no picture and runs no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.album.sources import Entry
from ercr.errors import InputError, WordNotFound
from ercr.explanation import Explanation, Word
from ercr.image.images import LoadedImage
from ercr.words import Grounding

Row = dict[str, Any]


def row(index: int, entry: Entry, prompt: str, explanation: Explanation, maps: bool) -> Row:
    """The row of an explained picture."""
    tokens = explanation.tokens
    found = explanation.maps[[token.row for token in tokens]]
    assert isinstance(explanation.image, LoadedImage), "an album has one picture in each row"
    height, width = explanation.image.size
    places = {token.row: place for place, token in enumerate(tokens)}
    return {
        **_head(index, entry, prompt),
        "status": "ok",
        "answer": explanation.text,
        "width": width,
        "height": height,
        "sha256": explanation.image.sha256(),
        "words": [_word(word, places) for word in explanation.words],
        "tokens": [{"text": t.text, "id": t.id, "probability": t.probability} for t in tokens],
        "shape": list(found.shape),
        "maps": np.rint(np.clip(found, 0, 1) * 255).astype(np.uint8).tobytes() if maps else None,
    }


def failed(index: int, entry: Entry | None, prompt: str, reason: str) -> Row:
    """The row of a picture that could not be explained."""
    own = entry or Entry(f"picture {index}", "")
    return {**_head(index, own, prompt), "status": "failed", "reason": reason}


def _head(index: int, entry: Entry, prompt: str) -> Row:
    asked = entry.prompt or prompt
    return {"index": index, "picture": entry.name, "prompt": asked, "given": entry.answer is not None}


def _word(word: Word, places: Mapping[int, int]) -> Row:
    y, x = np.unravel_index(int(word.map.argmax()), word.map.shape)
    return {
        "text": word.text,
        "first": places[word.tokens[0].row],
        "last": places[word.tokens[-1].row],
        "probability": word.probability,
        "evidence": word.evidence,
        "strength": word.strength,
        "share": word.share,
        **({} if word.grounding is None else _grounding(word.grounding)),
        **({} if word.spot is None else {"place": word.spot.name, "box": list(word.spot.box)}),
        "x": (x + 0.5) / word.map.shape[1],
        "y": (y + 0.5) / word.map.shape[0],
    }


def _grounding(found: Grounding) -> Row:
    return {
        **{name: getattr(found, name) for name in ("content", "seen", "verdict", "focus")},
        **{"lens_rank": found.lens_rank, "lens_probability": found.lens_probability},
        "image_effect": next(iter(found.image_effect.values()), None),
    }


def maps_of(found: Mapping[str, Any]) -> NDArray[np.float32]:
    """The maps [tokens, h, w] of a row, in 0..1."""
    if found.get("maps") is None:
        raise InputError(f"The row of {found.get('picture')!r} has no maps: run without --no-maps.")
    values = np.frombuffer(found["maps"], np.uint8).reshape(found["shape"])
    return np.asarray(values / np.float32(255), np.float32)


def word_map(found: Mapping[str, Any], word: str) -> NDArray[np.float32]:
    """The map [h, w] of the first word with this text: the highest of its tokens."""
    own = next((one for one in found["words"] or () if one["text"].strip(" .,!?").lower() == word.lower()), None)
    if own is None:
        said = ", ".join(one["text"] for one in found["words"] or ()) or "nothing"
        raise WordNotFound(f"The answer about {found['picture']!r} has no word {word!r}; it has {said}.")
    return np.asarray(maps_of(found)[own["first"] : own["last"] + 1].max(0), np.float32)
