"""What methods share that look into a second pass: scores over the visual tokens as maps, nothing to refine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.readout import normalise, valid_cells
from ercr.methods.registry import register
from ercr.trace import Needs, Trace


@dataclass(frozen=True)
class BlockSettings(Settings):
    """Of methods that read one block."""

    layer: int = -1  # counted from 0 or from the end


Scores = Callable[[Trace, slice, Any], Tensor]


def register_inside(
    name: str, title: str, paper: str, settings: type[Settings], scores: Scores, reads: str, cost: str, memory: str
) -> Method:
    """A method that is one function: scores [R, N] of the visual tokens for some rows."""

    def evidence(trace: Trace, tokens: slice, chosen: Any) -> Evidence:
        maps = trace.geometry.stitch(scores(trace, tokens, chosen).float())
        return Evidence(normalise(maps, valid_cells(trace.geometry, maps.device)), {"raw": maps})

    return register(
        Method(
            name=name,
            title=title,
            paper=paper,
            settings=settings,
            needs=lambda _: Needs(replay=True),
            evidence=evidence,
            refine=_as_is,
            reads=reads,
            cost=cost,
            memory=memory,
            streams=lambda _: False,
        )
    )


def _as_is(trace: Trace, evidence: Tensor, tokens: slice, settings: Any) -> Result:
    return Result(evidence[tokens])
