"""Saved explanations read back; `export.py` writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ercr.errors import ErcrError, FileFormatError
from ercr.explanation.export import FORMAT
from ercr.explanation.result import Explanation
from ercr.image.geometry import Geometry
from ercr.image.images import load_image
from ercr.words import Candidate, Token


def load(path: str | os.PathLike[str]) -> Explanation:
    """Read an explanation that `Explanation.save` wrote."""
    file = Path(path)
    if not file.is_file():
        raise FileFormatError(f"There is no file {file}.")
    try:
        with safe_open(file, framework="numpy") as archive:
            header = json.loads((archive.metadata() or {})["ercr"])
            arrays = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118 - not a dict
        if header["format"] != FORMAT:
            raise FileFormatError(f"{file} was written in format {header['format']}; this version reads {FORMAT}.")
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


def _token_from_dict(data: dict[str, Any]) -> Token:
    return Token(**{**data, "candidates": tuple(Candidate(*entry) for entry in data["candidates"])})
