"""From explanations to rows of an album, and from a row back to maps; reads no picture and runs no model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.album.sources import Entry
from ercr.errors import InputError, WordNotFound
from ercr.explanation import Explanation, Word
from ercr.image.pieces import Pieces
from ercr.words import Grounding

Row = dict[str, Any]


def row(index: int, entry: Entry, prompt: str, explanation: Explanation, maps: bool) -> Row:
    """The row of an explained picture."""
    tokens = explanation.tokens
    found = explanation.maps[[token.row for token in tokens]]
    height, width = explanation.media[0].size
    several = isinstance(explanation.geometry, Pieces)
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
        "pieces": json.dumps(explanation.geometry.to_dict()) if several else None,
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
    spot = word.spot
    peak = word.maps[0 if spot is None else spot.picture]
    y, x = np.unravel_index(int(peak.argmax()), peak.shape)[-2:]
    return {
        "text": word.text,
        "first": places[word.tokens[0].row],
        "last": places[word.tokens[-1].row],
        "probability": word.probability,
        "evidence": word.evidence,
        "strength": word.strength,
        "share": word.share,
        **({} if word.grounding is None else _grounding(word.grounding)),
        **({} if spot is None else {"place": spot.name, "box": list(spot.box)}),
        **({"piece": spot.picture, "time": spot.seconds} if spot and isinstance(word.geometry, Pieces) else {}),
        "x": (x + 0.5) / peak.shape[-1],
        "y": (y + 0.5) / peak.shape[-2],
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


def word_map(found: Mapping[str, Any], word: str, picture: int | None = None) -> NDArray[np.float32]:
    """The map [h, w] of the first word with this text: the highest of its tokens.

    Of several pictures, `picture` chooses one; a clip has [slices, h, w].
    """
    own = next((one for one in found["words"] or () if one["text"].strip(" .,!?").lower() == word.lower()), None)
    if own is None:
        said = ", ".join(one["text"] for one in found["words"] or ()) or "nothing"
        raise WordNotFound(f"The answer about {found['picture']!r} has no word {word!r}; it has {said}.")
    map_ = np.asarray(maps_of(found)[own["first"] : own["last"] + 1].max(0), np.float32)
    if found.get("pieces") is None:
        return map_
    parts = Pieces.from_dict(json.loads(found["pieces"])).split(map_)
    if picture is None and len(parts) > 1:
        raise InputError(f"The row of {found['picture']!r} has {len(parts)} pictures: say which one with picture=0.")
    if not -len(parts) <= (picture or 0) < len(parts):
        raise InputError(f"The row of {found['picture']!r} has {len(parts)} pictures, so there is no {picture}.")
    return parts[picture or 0]
