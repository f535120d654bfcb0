"""A schema for the header of saved explanations: checks that raise with the path of the wrong value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ercr.errors import FileFormatError

Check = Callable[[Any, str], None]
Checks = Mapping[str, Check]
MAX_SIDE = 8192  # cells along a side of a token grid
MAX_FRAMES = 100_000  # of a clip
_MAX_EDGE = 1e7  # largest coordinate of a canvas in pixels
_MAX_INT = 2**31 - 1
_MAX_LENGTH = 10**6  # entries of a list


def fail(where: str, why: str) -> None:
    raise FileFormatError(f"{where} {why}")


def integer(low: int, high: int) -> Check:
    return _predicate(lambda v: type(v) is int and low <= v <= high, f"is not an integer from {low} to {high}")


def number(low: float, high: float) -> Check:
    return _predicate(
        lambda v: type(v) in (int, float) and low <= v <= high, f"is not a number from {low:g} to {high:g}"
    )


def one_of(*values: Any) -> Check:
    return _predicate(
        lambda v: any(type(v) is type(value) and v == value for value in values), f"is not one of {values}"
    )


def list_of(check: Check, least: int = 0, most: int = _MAX_LENGTH) -> Check:
    """A list whose every entry passes the check."""

    def run(value: Any, where: str) -> None:
        if not isinstance(value, list) or not least <= len(value) <= most:
            fail(where, f"is not a list of {least} to {most} entries")
        for index, item in enumerate(value):
            check(item, f"{where}[{index}]")

    return run


def tuple_of(*checks: Check) -> Check:
    """A list with one entry for each check."""

    def run(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != len(checks):
            fail(where, f"is not a list of {len(checks)} entries")
        for index, (check, item) in enumerate(zip(checks, value, strict=True)):
            check(item, f"{where}[{index}]")

    return run


def object_of(
    needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None, rest: Check | None = None
) -> Check:
    """An object with these fields; `rest` checks all other fields, which are refused without it."""
    known = {**needed, **(optional or {})}

    def run(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            fail(where, "is not an object")
        for name in needed:
            if name not in value:
                fail(where, f"has no {name!r}")
        for name, item in value.items():
            check = known.get(name, rest)
            if check is None:
                fail(where, f"has {name[:40]!r}, which is unknown")
            else:
                text(name, where)
                check(item, f"{where}.{name[:40]}")

    return run


def any_of(*checks: Check) -> Check:
    """The value must pass one of the checks; if none passes, the last one raises."""

    def run(value: Any, where: str) -> None:
        for check in checks[:-1]:
            try:
                return check(value, where)
            except FileFormatError:
                continue
        return checks[-1](value, where)

    return run


def _predicate(holds: Callable[[Any], bool], why: str) -> Check:
    def run(value: Any, where: str) -> None:
        if not holds(value):
            fail(where, why)

    return run


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot encode
        return False


text = _predicate(_is_text, "is not text")
flag = one_of(False, True)
_nothing = one_of(None)
_json_number = any_of(integer(-(2**63), 2**63), number(-1e300, 1e300))
_value = any_of(_nothing, flag, text, _json_number)
_values = any_of(_value, list_of(_value, most=1000))
# any JSON value of limited depth, for facts that later versions or plugins add
_json_value = _values
for _ in range(4):
    _json_value = any_of(_values, list_of(_json_value, most=1000), object_of({}, rest=_json_value))

_probability = number(0, 1.001)
_cell = integer(1, MAX_SIDE)
# no exponent: Fraction("1e999999999") has a billion digits
_FRACTION = re.compile("-?[0-9]{1,40}(/0*[1-9][0-9]{0,39})?")


def _is_fraction(value: Any) -> bool:
    return isinstance(value, str) and _FRACTION.fullmatch(value) is not None


_fraction = _predicate(_is_fraction, "is not a fraction")
_lean = _predicate(lambda v: _is_fraction(v) and abs(Fraction(v)) <= 4, "is not a fraction of at most 4 cells")
_edges = tuple_of(*[number(-_MAX_EDGE, _MAX_EDGE)] * 4)

_TOKEN = object_of(
    {
        "text": text,
        "id": integer(0, _MAX_INT),
        "row": integer(0, _MAX_INT),
        "position": integer(0, _MAX_INT),
        "kind": one_of("prompt", "answer"),
        "special": flag,
        "probability": _probability,
        "candidates": list_of(tuple_of(text, integer(0, _MAX_INT), _probability), most=1000),
    }
)
_PANEL = object_of(
    {"grid": tuple_of(_cell, _cell), "box": _edges},
    {
        "exact": tuple_of(*[_fraction] * 4),
        "lean": tuple_of(*[_lean] * 2),
        "spans": tuple_of(*[list_of(tuple_of(_fraction, _fraction), 1, MAX_SIDE)] * 2),
    },
)
_PICTURE = {
    "size": tuple_of(integer(1, _MAX_INT), integer(1, _MAX_INT)),
    "layout": tuple_of(integer(1, 1000), integer(1, 1000)),
    "panels": list_of(_PANEL, 1, 4096),
}
_seconds = number(0, 1e7)
_PIECE = object_of(
    _PICTURE, {"times": list_of(list_of(_seconds, 1, 64), 1, MAX_FRAMES), "end": _seconds}
)  # a picture, or a clip with the times of its slices' frames
_GEOMETRY = any_of(object_of({"pieces": list_of(_PIECE, 1, 1000)}), object_of(_PICTURE))
_MEDIUM = any_of(
    object_of({"kind": one_of("picture")}),
    object_of(
        {
            "kind": one_of("clip"),
            "exact": flag,
            "indices": list_of(integer(0, _MAX_INT), 1, MAX_FRAMES),
            "of": integer(1, _MAX_INT),
            "fps": number(1e-6, 1e6),
            "bytes": list_of(integer(1, 2**31), 1, MAX_FRAMES),
        }
    ),
)
_MESSAGE = object_of(
    {
        "role": one_of("system", "user", "assistant"),
        "content": list_of(
            any_of(object_of({"type": one_of("image", "video")}), object_of({"type": one_of("text"), "text": text}))
        ),
    }
)
_PROVENANCE = object_of(
    {"image": object_of({"sha256": text}, rest=_json_value)},
    {
        "model": any_of(_nothing, text),
        "method": any_of(_nothing, text),
        "answer": any_of(_nothing, text),
        "settings": any_of(_nothing, object_of({}, rest=_values)),
        "versions": any_of(_nothing, object_of({}, rest=_value)),
        "conversation": list_of(_MESSAGE),
    },
    rest=_json_value,
)
_share, _weight = number(0, 1), number(-1e6, 1e6)
_PART = object_of(
    {"name": text, "mean": _weight, "scale": number(1e-6, 1e6), "weight": _weight, "low": _weight, "high": _weight}
)
_CALIBRATION = object_of(
    {
        "name": text,
        "parts": list_of(_PART, most=100),
        "bias": _weight,
        "below": _share,
        "above": _share,
        "curve": list_of(tuple_of(_share, _share), most=1000),
        "fitted": object_of({}, rest=_json_value),
    }
)
HEADER = object_of(
    {"format": integer(0, _MAX_INT), "tokens": list_of(_TOKEN), "geometry": _GEOMETRY, "provenance": _PROVENANCE},
    {
        "instead": list_of(list_of(tuple_of(text, integer(0, _MAX_INT)), 1, 100)),
        "calibration": _CALIBRATION,
        "media": list_of(_MEDIUM, 1, 1000),
    },
)
TENSOR = object_of(
    {
        "dtype": one_of("F32", "U8"),
        "shape": list_of(integer(0, _MAX_INT), 1, 3),
        "data_offsets": tuple_of(integer(0, 2**40), integer(0, 2**40)),
    }
)
