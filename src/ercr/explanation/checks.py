"""What a saved explanation's header must look like, as data; each check names the place that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ercr.errors import FileFormatError

Check = Callable[[Any, str], None]
Checks = Mapping[str, Check]
SIDE = 8192  # cells along a side of a token grid
_EDGE = 1e7  # pixels that a canvas may reach beyond the picture
_WHOLE = 2**31 - 1
_LONGEST = 10**6  # entries of a list


def refuse(where: str, why: str) -> None:
    raise FileFormatError(f"{where} {why}")


def whole(low: int, high: int) -> Check:
    return _that(lambda v: type(v) is int and low <= v <= high, f"is no whole number from {low} to {high}")


def real(low: float, high: float) -> Check:
    return _that(lambda v: type(v) in (int, float) and low <= v <= high, f"is no number from {low:g} to {high:g}")


def one_of(*values: Any) -> Check:
    return _that(lambda v: any(type(v) is type(value) and v == value for value in values), f"is none of {values}")


def listed(check: Check, least: int = 0, most: int = _LONGEST) -> Check:
    def run(value: Any, where: str) -> None:
        if not isinstance(value, list) or not least <= len(value) <= most:
            refuse(where, f"is no list of {least} to {most} entries")
        for index, item in enumerate(value):
            check(item, f"{where}[{index}]")

    return run


def fixed(*checks: Check) -> Check:
    def run(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != len(checks):
            refuse(where, f"is no list of {len(checks)} entries")
        for index, (check, item) in enumerate(zip(checks, value, strict=True)):
            check(item, f"{where}[{index}]")

    return run


def fields(
    needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None, rest: Check | None = None
) -> Check:
    known = {**needed, **(optional or {})}

    def run(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, "is no object")
        for name in needed:
            if name not in value:
                refuse(where, f"has no {name!r}")
        for name, item in value.items():
            check = known.get(name, rest)
            if check is None:
                refuse(where, f"has {name[:40]!r}, which is not known")
            else:
                text(name, where)
                check(item, f"{where}.{name[:40]}")

    return run


def either(*checks: Check) -> Check:
    """The last check's word counts where no other agrees."""

    def run(value: Any, where: str) -> None:
        for check in checks[:-1]:
            try:
                return check(value, where)
            except FileFormatError:
                continue
        return checks[-1](value, where)

    return run


def _that(holds: Callable[[Any], bool], why: str) -> Check:
    def run(value: Any, where: str) -> None:
        if not holds(value):
            refuse(where, why)

    return run


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:  # half a surrogate pair, which no file can hold
        return False


text = _that(_is_text, "is no text")
flag = one_of(False, True)
_nothing = one_of(None)
_number = either(whole(-(2**63), 2**63), real(-1e300, 1e300))
_value = either(_nothing, flag, text, _number)
_values = either(_value, listed(_value, most=1000))
# anything plain, at most so deep: what later versions or plugins may tell
_plain = _values
for _ in range(4):
    _plain = either(_values, listed(_plain, most=1000), fields({}, rest=_plain))

_probability = real(0, 1.001)
_cell = whole(1, SIDE)
# no exponent: "1e999999999" is a fraction, too, and one of a billion digits
_FRACTION = re.compile("-?[0-9]{1,40}(/0*[1-9][0-9]{0,39})?")
_fraction = _that(lambda v: isinstance(v, str) and _FRACTION.fullmatch(v) is not None, "is no fraction")
_edges = fixed(*[real(-_EDGE, _EDGE)] * 4)

_TOKEN = fields(
    {
        "text": text,
        "id": whole(0, _WHOLE),
        "row": whole(0, _WHOLE),
        "position": whole(0, _WHOLE),
        "kind": one_of("prompt", "answer"),
        "special": flag,
        "probability": _probability,
        "candidates": listed(fixed(text, whole(0, _WHOLE), _probability), most=1000),
    }
)
_PANEL = fields({"grid": fixed(_cell, _cell), "box": _edges}, {"exact": fixed(*[_fraction] * 4)})
_GEOMETRY = fields(
    {
        "size": fixed(whole(1, _WHOLE), whole(1, _WHOLE)),
        "layout": fixed(whole(1, 1000), whole(1, 1000)),
        "panels": listed(_PANEL, 1, 4096),
    }
)
_PROVENANCE = fields(
    {"image": fields({"sha256": text}, rest=_plain)},
    {
        "model": either(_nothing, text),
        "method": either(_nothing, text),
        "answer": either(_nothing, text),
        "settings": either(_nothing, fields({}, rest=_values)),
        "versions": either(_nothing, fields({}, rest=_value)),
    },
    rest=_plain,
)
HEADER = fields(
    {"format": whole(0, _WHOLE), "tokens": listed(_TOKEN), "geometry": _GEOMETRY, "provenance": _PROVENANCE}
)
TENSOR = fields(
    {
        "dtype": one_of("F32", "U8"),
        "shape": listed(whole(0, _WHOLE), 1, 3),
        "data_offsets": fixed(whole(0, 2**40), whole(0, 2**40)),
    }
)
