"""What is known of families: those whose tiny checkpoints were checked, and why some have no maps of cells.

`python -m tests.families --write` measures it and writes `checked.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("checked.json")


@dataclass(frozen=True)
class CheckedFamily:
    """One row of the table; a number is the worst of all pictures that were tried."""

    name: str
    title: str
    checkpoint: str  # an example on the hub
    type: str  # config.model_type
    decoder: str  # that of the decoder
    adapter: str  # own, generic, or none: no visual tokens with a place on the picture
    reason: str | None  # why there is none
    inputs: bool | None  # equal to the official processor's
    tokens: bool | None  # equal to generate's
    probabilities: float | None  # largest difference from those of generate
    painted: float | None  # share of painted cells whose own visual token changed most
    beside_own: float | None  # largest distance of generic centres from the own adapter's, in cells
    half: float | None  # the same between the probe in bfloat16 and in float32
    replayed: float | None  # largest difference of replayed from recorded states, over their size
    causal: bool | None  # whether visual states are the same whatever text is behind the picture
    mutual: bool | None  # whether visual tokens see those behind them
    batches: bool | None  # whether several pictures can share a pass
    methods: int  # how many run
    refused: dict[str, str]  # the others, with the reason


@cache
def checked_with() -> str:
    """The version of transformers that the families were checked with."""
    return str(_data()["transformers"])


@cache
def checked() -> tuple[CheckedFamily, ...]:
    """All checked families, by title."""
    return tuple(CheckedFamily(**row) for row in _data()["families"])


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data
