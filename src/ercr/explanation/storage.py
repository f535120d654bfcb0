"""Reads the explanations that `export.py` writes; the whole file is checked before anything of it is used."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.errors import FileFormatError, ImageError, InputError
from ercr.explanation import checks
from ercr.explanation.export import FORMAT, FORMAT_OF_PIECES
from ercr.explanation.media import from_arrays, names
from ercr.explanation.result import Explanation
from ercr.files.plain import read_plain
from ercr.image.clips import LoadedClip
from ercr.image.gallery import Gallery, Shown
from ercr.image.geometry import Geometry
from ercr.image.pieces import AnyGeometry, Pieces, pieces_of, read_geometry
from ercr.words import Candidate, Token
from ercr.words.calibration import Calibration
from ercr.words.contrast import Alternatives
from ercr.words.grounding import Signals

_PREFIX = 8  # bytes at the start of a safetensors file that hold the length of its header
_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "U8": np.dtype("u1")}
_LARGEST = 1e9  # value in a map or a weight: products of two stay within float32
_EPS = 1e-3  # by which rounding may exceed the range of maps
_SIGNAL = "signal."  # begins the names of arrays that tell seen words from guessed ones
Arrays = dict[str, NDArray[Any]]


def load(path: str | os.PathLike[str]) -> Explanation:
    """Read an explanation that `Explanation.save` wrote."""
    file = Path(path)
    data = read_plain(file, error=FileFormatError)
    try:
        header, arrays = _parts(data)
        if header.get("format") not in (FORMAT, FORMAT_OF_PIECES):
            found = str(header.get("format"))[:20]
            raise FileFormatError(f"it has format {found!r}, and this version reads {FORMAT} to {FORMAT_OF_PIECES}")
        checks.HEADER(header, "header")
        return _rebuild(header, arrays)
    except (FileFormatError, ImageError) as error:
        raise FileFormatError(f"{file} is not a readable explanation: {str(error).rstrip('.')}.") from None


def _parts(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a safetensors file; the arrays must fill it without gaps or overlaps."""
    size = int.from_bytes(data[:_PREFIX], "little")
    if len(data) < _PREFIX or size > len(data) - _PREFIX:
        raise FileFormatError("it is cut short or is not a safetensors file")
    described, body = _json(data[_PREFIX : _PREFIX + size]), memoryview(data)[_PREFIX + size :]
    checks.object_of({"__metadata__": checks.object_of({"ercr": checks.text})}, rest=checks.TENSOR)(described, "file")
    header = _json(described.pop("__metadata__")["ercr"].encode())
    arrays: Arrays = {}
    end = 0
    for name, entry in sorted(described.items(), key=lambda item: item[1]["data_offsets"]):
        (start, stop), kind = entry["data_offsets"], _TYPES[entry["dtype"]]
        if start != end or stop - start != math.prod(entry["shape"]) * kind.itemsize or stop > len(body):
            raise FileFormatError(f"the array {name[:40]!r} does not match its position in the file")
        arrays[name] = np.frombuffer(body[start:stop], kind).reshape(entry["shape"]).astype(kind.newbyteorder("="))
        end = stop
    if end != len(body):
        raise FileFormatError("it has bytes after its last array")
    return header, arrays


def _json(data: bytes) -> dict[str, Any]:
    """A JSON object without repeated names, NaN or infinity."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name is repeated")
        return found

    def reject(name: str) -> None:
        raise ValueError(f"{name} is not a number")

    try:
        found = json.loads(data, object_pairs_hook=unique, parse_constant=reject)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"its header cannot be read ({str(error)[:80]})") from None
    if not isinstance(found, dict):
        raise FileFormatError("its header is not a JSON object")
    return found


def _rebuild(header: dict[str, Any], arrays: Arrays) -> Explanation:
    tokens = tuple(_token(token) for token in header["tokens"])
    _check_tokens(tokens)
    for piece in header["geometry"].get("pieces", [header["geometry"]]):
        _check_geometry(piece)
    try:
        geometry = read_geometry(header["geometry"])
    except InputError as error:  # spans that do not fit their panel
        raise FileFormatError(str(error).rstrip(".").lower()) from None
    for own in pieces_of(geometry):
        _check_canvas(own.geometry)
    if isinstance(geometry, Pieces) != ("media" in header):
        raise FileFormatError("its pictures do not match its geometry")
    instead, signals = _alternatives(header, arrays, tokens, geometry), _signals(header, arrays, tokens)
    _check_arrays(arrays, (len(tokens), *geometry.grid), names(header.get("media")))
    stages = {name.removeprefix("stage."): maps for name, maps in arrays.items() if name.startswith("stage.")}
    return Explanation(
        image=_shown(header, arrays, geometry),
        geometry=geometry,
        text_tokens=tokens,
        maps=arrays["maps"],
        provenance=header["provenance"],
        stages=stages,
        alpha=arrays.get("alpha"),
        beta=arrays.get("beta"),
        relevance=arrays.get("relevance"),
        strength=arrays.get("strength"),
        scale=arrays.get("scale"),
        signals=signals,
        alternatives=instead,
    )


def _signals(header: dict[str, Any], arrays: Arrays, tokens: tuple[Token, ...]) -> Signals | None:
    """What was measured of the answer's tokens, taken out of the arrays; a number for each token and name."""
    values = {name.removeprefix(_SIGNAL): arrays.pop(name) for name in list(arrays) if name.startswith(_SIGNAL)}
    said, calibration = sum(token.kind == "answer" for token in tokens), header.get("calibration")
    if calibration is None:
        if values:
            raise FileFormatError("it has signals of words but not what they mean")
        return None
    for name, column in values.items():
        if column.shape != (said,) or column.dtype != np.float32 or not (np.abs(column) <= _LARGEST).all():
            raise FileFormatError(f"its signal {name[:40]!r} is not a number for each token of the answer")
    return Signals(len(tokens) - said, values, Calibration.from_dict(calibration))


def _alternatives(
    header: dict[str, Any], arrays: Arrays, tokens: tuple[Token, ...], geometry: AnyGeometry
) -> Alternatives | None:
    """What could have been said, taken out of the arrays; one list of equal length for each token of the answer."""
    listed = header.get("instead")
    if listed is None:
        return None
    said, counts = sum(token.kind == "answer" for token in tokens), {len(row) for row in listed}
    if len(listed) != said or len(counts) != 1:
        raise FileFormatError("its alternatives do not match its answer")
    count = counts.pop()
    maps, strength = (arrays.pop(f"instead.{name}", np.empty(0, np.float32)) for name in ("maps", "strength"))
    if maps.shape != (said * count, *geometry.grid) or strength.shape != (said, count):
        raise FileFormatError("its alternatives have maps of another shape than its answer")
    _check_arrays({"maps": maps}, maps.shape, [])
    if strength.dtype != np.float32 or not (np.abs(strength) <= _LARGEST).all():
        raise FileFormatError("its alternatives have strengths that are not numbers")
    ids = np.array([[token for _, token in row] for row in listed], np.int64)
    texts = tuple(tuple(text for text, _ in row) for row in listed)
    return Alternatives(len(tokens) - said, ids, texts, maps.reshape(said, count, *geometry.grid), strength)


def _token(data: dict[str, Any]) -> Token:
    return Token(**{**data, "candidates": tuple(Candidate(*entry) for entry in data["candidates"])})


def _check_tokens(tokens: tuple[Token, ...]) -> None:
    if [token.row for token in tokens] != list(range(len(tokens))):
        raise FileFormatError("its tokens are not in the order of their rows")
    answers = [token.kind == "answer" for token in tokens]
    if answers != sorted(answers):
        raise FileFormatError("its prompt tokens do not all come before the answer")


def _check_geometry(data: dict[str, Any]) -> None:
    rows, columns = data["layout"]
    tiles = data["panels"][: rows * columns]
    if len(tiles) != rows * columns or any(tile["grid"] != tiles[0]["grid"] for tile in tiles):
        raise FileFormatError("its tiles do not form a canvas")


def _check_canvas(geometry: Geometry) -> None:
    """The canvas must be a rectangle that overlaps the picture."""
    left, top, right, bottom = geometry.box
    height, width = geometry.size
    if not (left < right and top < bottom and left < width and top < height and right > 0 and bottom > 0):
        raise FileFormatError("its maps do not overlap the picture")
    reach = 10 * max(height, width) + 10**5
    if max(map(abs, geometry.box)) > reach or max(geometry.grid) > checks.MAX_SIDE:
        raise FileFormatError("its canvas is far larger than the picture")


def _check_arrays(arrays: Arrays, shape: tuple[int, ...], pictures: Sequence[str]) -> None:
    """Names, types, shapes and ranges of all arrays, for maps of this shape [S, h, w] and these names of pictures."""
    rows = shape[0]
    optional = {"alpha": (rows, rows), "beta": (rows,), "relevance": (rows, rows)}
    optional |= {"strength": (rows,), "scale": (rows,)}
    for name in (*pictures, "maps"):
        if name not in arrays:
            raise FileFormatError(f"it has no array {name!r}")
    for name, array in arrays.items():
        wanted = shape if name == "maps" or name.startswith("stage.") else optional.get(name)
        if name in pictures:
            fits = array.dtype == np.uint8 and array.ndim == 1
        else:
            fits = array.dtype == np.float32 and array.shape == wanted
        if not fits:
            raise FileFormatError(f"its array {name[:40]!r} has another type or shape than the header says")
        if array.dtype == np.float32 and not (np.abs(array) <= _LARGEST).all():
            raise FileFormatError(f"its array {name[:40]!r} holds NaN, infinity or numbers that are too large")
    maps = arrays["maps"]
    if maps.size and (maps.min() < -_EPS or maps.max() > 1 + _EPS):
        raise FileFormatError("its maps hold values outside 0 to 1")


def _shown(header: dict[str, Any], arrays: Arrays, geometry: AnyGeometry) -> Shown:
    """What is shown; it must be what the geometry and the hashes say."""
    shown, pieces, stated = from_arrays(header.get("media"), arrays), pieces_of(geometry), header["provenance"]["image"]
    if len(shown.items) != len(pieces):
        raise FileFormatError("its pictures do not match its geometry")
    exact = [described.get("exact", True) for described in header.get("media", [{}])]
    for item, piece in zip(shown.items, pieces, strict=True):
        if item.size != piece.geometry.size:
            raise FileFormatError("its picture has another size than its header says")
        frames = len(item.frames) if isinstance(item, LoadedClip) else 0
        if frames != piece.first_frames[-1]:
            raise FileFormatError("a clip has another number of frames than its header says")
    if isinstance(shown, Gallery):
        hashes = [str(piece.get("sha256")) for piece in _listed(stated.get("pieces"), len(pieces))]
    else:
        hashes = [stated["sha256"]]
    for item, wanted, whole in zip(shown.items, hashes, exact, strict=True):
        if whole and item.sha256() != wanted:
            raise FileFormatError("its picture does not match its hash")
    return shown


def _listed(value: Any, count: int) -> list[dict[str, Any]]:
    if not isinstance(value, list) or len(value) != count or not all(isinstance(item, dict) for item in value):
        raise FileFormatError("its provenance does not list its pictures")
    return value
