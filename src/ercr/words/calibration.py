"""Turns what was measured of a word into `seen`, one number in 0..1: a sum of few parts, then a curve; plain data.

A calibration is fitted by a script (`training/grounding`) and kept as JSON. Nothing here knows a model or a picture.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

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

    def seen(self, values: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """The number, and what each part adds to the sum; parts that were not measured add nothing."""
        added = {part.name: part.of(values[part.name]) for part in self.parts if _known(values.get(part.name))}
        raw = 1 / (1 + math.exp(-(self.bias + sum(added.values()))))
        return _along(self.curve, raw), added

    def verdict(self, seen: float) -> Verdict:
        return "guessed" if seen < self.below else "seen" if seen >= self.above else "unsure"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "fitted": dict(self.fitted)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        return cls(
            **{
                **data,
                "parts": tuple(Part(**part) for part in data["parts"]),
                "curve": tuple((float(x), float(y)) for x, y in data.get("curve", ())),
            }
        )


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
