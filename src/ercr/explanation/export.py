"""Writes explanations: `.ercr` files that `storage.py` reads, and arrays and JSON for other tools."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save as to_safetensors

from ercr.explanation.media import to_arrays
from ercr.files.writing import write_atomic
from ercr.image.pieces import Pieces
from ercr.render.animation import animation, check
from ercr.render.film import film
from ercr.words import Token, Which, Word, WordMaps
from ercr.words.contrast import Alternatives

FORMAT = 1
FORMAT_OF_PIECES = 2  # of several pictures, or a clip; earlier versions cannot read it


def save(explanation: WordMaps, path: Path) -> None:
    """Write one file with everything that `load` needs, including the image."""
    pictures, media = to_arrays(explanation.image)
    arrays: dict[str, NDArray[Any]] = {"maps": explanation.maps, **pictures}
    arrays |= {f"stage.{name}": maps for name, maps in explanation.stages.items()}
    arrays |= _optional(explanation)
    instead, signals = explanation.alternatives, explanation.signals
    if signals is not None:
        arrays |= {f"signal.{name}": values for name, values in signals.values.items()}
    if instead is not None:
        arrays |= {
            "instead.maps": instead.maps.reshape(-1, *instead.maps.shape[2:]),
            "instead.strength": instead.strength,
        }
    header = {
        "format": FORMAT if media is None else FORMAT_OF_PIECES,
        "tokens": [_token_to_dict(token) for token in explanation.text_tokens],
        "geometry": explanation.geometry.to_dict(),
        "provenance": explanation.provenance,
        **({} if instead is None else {"instead": _instead_to_list(instead)}),
        **({} if signals is None else {"calibration": signals.calibration.to_dict()}),
        **({} if media is None else {"media": media}),
    }
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_atomic(path, to_safetensors(contiguous, metadata={"ercr": json.dumps(header, ensure_ascii=False)}))


def write_animation(explanation: WordMaps, path: Path, which: Which = None) -> None:
    """Write moving pictures, in the format that the file's ending says."""
    check(path)
    write_atomic(path, animation(film(explanation, which), path.suffix))


def as_arrays(explanation: WordMaps) -> dict[str, NDArray[Any]]:
    """Texts and maps of words and of tokens, earlier stages, context weights, and where on the image the maps lie.

    Of several pictures and clips, maps are rows of cells [1, cells]; `words_0` holds the words' maps of the first one,
    [words, h, w] or of a clip [words, slices, h, w], and so on.
    """
    grid, tokens = explanation.maps.shape[1:], explanation.text_tokens
    signals = {} if explanation.signals is None else explanation.signals.values
    return {
        **_words("", explanation.words, grid),
        **_words("prompt_", explanation.prompt_words, grid),
        "tokens": np.array([token.text for token in tokens], np.str_),
        "token_ids": np.array([token.id for token in tokens], np.int64),
        "token_in_answer": np.array([token.kind == "answer" for token in tokens], np.bool_),
        "token_maps": explanation.maps,
        **{f"stage_{name}": maps for name, maps in explanation.stages.items()},
        **_optional(explanation),
        **{f"signal_{name.replace('.', '_')}": values for name, values in signals.items()},  # of the answer's tokens
        **_places(explanation),
        "text": np.array(explanation.text),
        "prompt": np.array(explanation.prompt),
    }


def _places(explanation: WordMaps) -> dict[str, NDArray[Any]]:
    """Where the cells lie; of several pieces, the names end in the piece's number."""
    several = isinstance(explanation.geometry, Pieces)
    found: dict[str, NDArray[Any]] = {}
    for at, piece in enumerate(explanation.pieces):
        tail, canvas = f"_{at}" if several else "", piece.geometry.canvas
        found |= {
            f"box{tail}": np.array(piece.geometry.box, np.float64),  # left, top, right, bottom in pixels of the image
            f"lean{tail}": np.array([float(part) for part in canvas.lean]),  # in cells, down and right
            f"row_centres{tail}": canvas.centres[0],  # where the rows look, in pixels from the top
            f"column_centres{tail}": canvas.centres[1],  # the columns, from the left
            f"image_size{tail}": np.array(piece.geometry.size, np.int64),  # height, width
        }
        if several:
            maps = [word.maps[at] for word in explanation.words]
            found[f"words{tail}"] = np.array(maps, np.float32).reshape(len(maps), *piece.shape)
        if piece.clip:
            found[f"seconds{tail}"] = np.array(piece.spans, np.float64)  # start and stop of each slice
    return found


def _optional(explanation: WordMaps) -> dict[str, NDArray[Any]]:
    """The arrays that only some methods have."""
    found = {name: getattr(explanation, name) for name in ("alpha", "beta", "relevance", "strength", "scale")}
    return {name: values for name, values in found.items() if values is not None}


def _words(prefix: str, words: Sequence[Word], grid: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    seen = [word.grounding.seen for word in words if word.grounding is not None]
    return {
        **({f"{prefix}seen": np.array(seen, np.float64)} if seen else {}),
        f"{prefix}words": np.array([word.text for word in words], np.str_),
        f"{prefix}maps": np.array([word.map for word in words], np.float32).reshape(len(words), *grid),
        f"{prefix}probability": np.array([word.probability for word in words], np.float64),
        f"{prefix}evidence": np.array([word.evidence for word in words], np.float64),
        f"{prefix}strength": np.array([word.strength for word in words], np.float64),
        f"{prefix}share": np.array([word.share for word in words], np.float64),
    }


def to_npz(explanation: WordMaps) -> bytes:
    """The same arrays as one compressed file, which `numpy.load` reads."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **as_arrays(explanation))  # type: ignore[arg-type]
    return buffer.getvalue()


def as_json(explanation: WordMaps) -> dict[str, Any]:
    """Plain data: the texts, the words with their maps on the token grid, and the provenance."""

    def as_dicts(words: Sequence[Word]) -> list[dict[str, Any]]:
        return [
            {
                "text": word.text,
                "tokens": [_token_to_dict(token) for token in word.tokens],
                "probability": word.probability,
                "evidence": word.evidence,
                "strength": word.strength,
                "share": word.share,
                **({} if word.grounding is None else {"grounding": word.grounding.to_dict()}),
                **_map_to_dict(word),
            }
            for word in words
        ]

    return {
        "text": explanation.text,
        "prompt": explanation.prompt,
        "words": as_dicts(explanation.words),
        "prompt_words": as_dicts(explanation.prompt_words),
        "geometry": explanation.geometry.to_dict(),
        "seen": explanation.seen,
        "provenance": explanation.provenance,
    }


def _map_to_dict(word: Word) -> dict[str, Any]:
    """A word's map; of several pieces a map each, and where the evidence is."""
    if not isinstance(word.geometry, Pieces):
        return {"map": _rounded(word.map)}
    return {"maps": [_rounded(map_) for map_ in word.maps], "where": [asdict(place) for place in word.where()]}


def _rounded(map_: NDArray[Any]) -> list[Any]:
    rounded: list[Any] = np.round(map_.astype(np.float64), 5).tolist()
    return rounded


def _instead_to_list(instead: Alternatives) -> list[list[list[Any]]]:
    """Text and id of every alternative, by row."""
    rows = zip(instead.texts, instead.ids.tolist(), strict=True)
    return [[[text, id_] for text, id_ in zip(texts, ids, strict=True)] for texts, ids in rows]


def _token_to_dict(token: Token) -> dict[str, Any]:
    fields = {
        name: getattr(token, name) for name in ("text", "id", "row", "position", "kind", "special", "probability")
    }
    return {**fields, "candidates": [[c.text, c.id, c.probability] for c in token.candidates]}
