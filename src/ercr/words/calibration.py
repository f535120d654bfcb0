"""Turns what was measured of a word into `seen`, one number in 0..1: a sum of few parts, then a curve; plain data.

A calibration is fitted by a script (`training/grounding`) and kept as JSON. Nothing here knows a model or a picture.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

from ercr.errors import InputError, nearest
from ercr.words.usual import Usual

Verdict = Literal["seen", "unsure", "guessed"]


@dataclass(frozen=True)
class Part:
    """One part of the sum: a measured value, standardised, limited, and weighted."""

    name: str  # of the measured value
    mean: float
    scale: float
    weight: float
    low: float = -3.0  # limits of the standardised value, so that no single part decides by being extreme
    high: float = 3.0

    def of(self, value: float) -> float:
        return self.weight * min(max((value - self.mean) / self.scale, self.low), self.high)


@dataclass(frozen=True)
class Calibration:
    """Parts, and what their sum means."""

    name: str
    parts: tuple[Part, ...]
    bias: float
    below: float  # a word with less than this is guessed
    above: float  # a word with at least this is seen
    curve: tuple[tuple[float, float], ...] = ()  # from the logistic function of the sum to the share that was there
    fitted: Mapping[str, Any] = field(default_factory=dict)  # on what, for people to read
    usual: Usual | None = field(default=None, repr=False, compare=False)  # of one model's words; not part of the JSON

    def seen(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """The number, and what each part adds to the sum; parts that were not measured add nothing."""
        added = {part.name: part.of(values[part.name]) for part in self.parts if _known(values.get(part.name))}
        raw = 1 / (1 + math.exp(-(self.bias + sum(added.values()))))
        return _along(self.curve, raw), added

    def verdict(self, seen: float) -> Verdict:
        return "guessed" if seen < self.below else "seen" if seen >= self.above else "unsure"

    def to_dict(self) -> dict[str, Any]:
        plain = asdict(replace(self, usual=None))
        del plain["usual"]
        return {**plain, "fitted": dict(self.fitted)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        return cls(
            **{
                **data,
                "parts": tuple(Part(**part) for part in data["parts"]),
                "curve": tuple((float(x), float(y)) for x, y in data.get("curve", ())),
            }
        )


GENERAL, FIXED = "general", "fixed"  # for any model; and one that was set by hand


@cache
def packaged_calibrations() -> tuple[str, ...]:
    """The calibrations that come with the package: one for each packaged model, and those for any model."""
    found = (Path(str(file)) for file in (files("ercr.words") / "calibrations").iterdir())
    return tuple(sorted(file.stem for file in found if file.suffix == ".json"))


def calibration_for(model: str) -> Calibration:
    """A packaged model's own calibration, or the one for any model."""
    return find_calibration(model if model in packaged_calibrations() else GENERAL)


def find_calibration(name: str | os.PathLike[str]) -> Calibration:
    """A calibration by the name of a packaged one, or from a JSON file; its table of words lies beside it as NPZ."""
    if str(name) in packaged_calibrations():
        file = files("ercr.words") / "calibrations" / f"{name}.json"
        text, table = file.read_text(encoding="utf-8"), files("ercr.words") / "calibrations" / f"{name}.npz"
    else:
        path = Path(name)
        if not path.is_file():
            known = ", ".join(packaged_calibrations())
            near = nearest(str(name), packaged_calibrations())
            raise InputError(f"There is no calibration {str(name)!r}: use {known} or a JSON file.{near}")
        text, table = path.read_text(encoding="utf-8", errors="replace"), path.with_suffix(".npz")
    try:
        found = Calibration.from_dict(json.loads(text))
        return replace(found, usual=_table(table)) if table.is_file() else found
    except (ValueError, TypeError, KeyError, AttributeError, BadZipFile) as error:
        raise InputError(f"{name} is not a calibration of `seen`: {' '.join(str(error).split())[:120]}.") from None


def _table(file: Any) -> Usual:
    with file.open("rb") as opened:
        return Usual.load(opened)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _along(curve: Sequence[tuple[float, float]], at: float) -> float:
    """The height of a curve of straight pieces; without a curve the place itself."""
    if not curve:
        return at
    if at <= curve[0][0]:
        return curve[0][1]
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0) if x1 > x0 else y1
    return curve[-1][1]
