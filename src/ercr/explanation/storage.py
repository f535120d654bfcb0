"""Explanations as files: safetensors arrays with a JSON header."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from ercr.errors import ErcrError, FileFormatError
from ercr.explanation import Candidate, Explanation, Token
from ercr.files.writing import write_atomic
from ercr.image.geometry import Geometry
from ercr.image.images import load_image

_FORMAT = 1


def save(explanation: Explanation, path: Path) -> None:
    """One file with everything `load` needs, the image included."""
    arrays = {"maps": explanation.maps, "image": np.frombuffer(explanation.image.to_bytes(), np.uint8)}
    arrays |= {f"stage.{name}": maps for name, maps in explanation.stages.items()}
    optional = {"alpha": explanation.alpha, "beta": explanation.beta, "relevance": explanation.relevance}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    header = {
        "format": _FORMAT,
        "tokens": [_token_to_dict(token) for token in explanation.text_tokens],
        "geometry": explanation.geometry.to_dict(),
        "provenance": explanation.provenance,
    }
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_atomic(path, to_safetensors(contiguous, metadata={"ercr": json.dumps(header, ensure_ascii=False)}))


def load(path: str | os.PathLike[str]) -> Explanation:
    """Read an explanation that `Explanation.save` wrote."""
    file = Path(path)
    if not file.is_file():
        raise FileFormatError(f"There is no file {file}.")
    try:
        with safe_open(file, framework="numpy") as archive:
            header = json.loads((archive.metadata() or {})["ercr"])
            arrays = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118 - not a dict
        if header["format"] != _FORMAT:
            raise FileFormatError(f"{file} was written in format {header['format']}; this version reads {_FORMAT}.")
        return _rebuild(header, arrays)
    except FileFormatError:
        raise
    except (SafetensorError, KeyError, ValueError, TypeError, IndexError, OSError, ErcrError) as error:
        raise FileFormatError(f"{file} is not a readable explanation: {error!r}.") from None


def _rebuild(header: dict[str, Any], arrays: dict[str, Any]) -> Explanation:
    image = load_image(arrays["image"].tobytes())
    if image.sha256() != header["provenance"]["image"]["sha256"]:
        raise FileFormatError("The stored image does not match its hash: the file is damaged.")
    stages = {name.removeprefix("stage."): maps for name, maps in arrays.items() if name.startswith("stage.")}
    return Explanation(
        image=image,
        geometry=Geometry.from_dict(header["geometry"]),
        text_tokens=tuple(_token_from_dict(token) for token in header["tokens"]),
        maps=arrays["maps"],
        provenance=header["provenance"],
        stages=stages,
        alpha=arrays.get("alpha"),
        beta=arrays.get("beta"),
        relevance=arrays.get("relevance"),
    )


def _token_to_dict(token: Token) -> dict[str, Any]:
    fields = {
        name: getattr(token, name) for name in ("text", "id", "row", "position", "kind", "special", "probability")
    }
    return {**fields, "candidates": [[c.text, c.id, c.probability] for c in token.candidates]}


def _token_from_dict(data: dict[str, Any]) -> Token:
    return Token(**{**data, "candidates": tuple(Candidate(*entry) for entry in data["candidates"])})


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Plain data: what was said, the words with their maps on the token grid, and the provenance."""

    def listed(words: Any) -> list[dict[str, Any]]:
        return [
            {
                "text": word.text,
                "tokens": [_token_to_dict(token) for token in word.tokens],
                "probability": word.probability,
                "evidence": word.evidence,
                "map": [[round(float(v), 5) for v in row] for row in word.map],
            }
            for word in words
        ]

    return {
        "text": explanation.text,
        "prompt": explanation.prompt,
        "words": listed(explanation.words),
        "prompt_words": listed(explanation.prompt_words),
        "geometry": explanation.geometry.to_dict(),
        "seen": explanation.seen,
        "provenance": explanation.provenance,
    }
