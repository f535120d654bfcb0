"""Base of the methods that use a second pass (the replay): one function returns scores of the visual tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.readout import stretched, valid_cells
from ercr.methods.registry import register
from ercr.trace import Needs, Trace


@dataclass(frozen=True)
class BlockSettings(Settings):
    """Settings of methods that read one block."""

    layer: int = -1  # block, counted from 0 or, if negative, from the end


Scores = Callable[[Trace, slice, Any], Tensor]


def register_inside(
    name: str,
    title: str,
    paper: str,
    settings: type[Settings],
    scores: Scores,
    reads: str,
    cost: str,
    memory: str,
    unit: str = "score",
) -> Method:
    """Register a method that is one function: the scores [R, N] of the visual tokens for some rows, in some unit."""

    def evidence(trace: Trace, tokens: slice, chosen: Any) -> Evidence:
        maps = trace.geometry.stitch(scores(trace, tokens, chosen).float())
        shown, size = stretched(maps, valid_cells(trace.geometry, maps.device))
        return Evidence(shown, {"raw": maps}, size.flatten().clamp(min=0))

    return register(
        Method(
            name=name,
            title=title,
            paper=paper,
            settings=settings,
            needs=lambda _: Needs(replay=True),
            evidence=evidence,
            refine=_unchanged,
            unit=unit,
            reads=reads,
            cost=cost,
            memory=memory,
            streams=lambda _: False,
        )
    )


def _unchanged(trace: Trace, evidence: Tensor, tokens: slice, settings: Settings) -> Result:
    return Result(evidence[tokens])
