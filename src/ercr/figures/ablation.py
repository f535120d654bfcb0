"""Ablation of ERCR for chosen words: one or several views, without a context or with one of three kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ercr.errors import InputError
from ercr.figures.choice import checked, choose
from ercr.figures.grid import Column, draw_grid
from ercr.figures.panel import Scale, Shade
from ercr.figures.sheet import PAGE, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ercr.words import Which, WordMaps

# the methods to pass to `explain_all`, in the order of the figure
ABLATION = (
    "ercr:views=1,context=none",
    "ercr:context=none",
    "ercr:views=1",
    "ercr:context=mean",
    "ercr:context=tam",
    "ercr",
)
_CONTEXTS = {"none": "", "mean": "mean sub.", "tam": "TAM-style", "pcr": "PCR"}
_WEIGHTS = {"none": "no context", "mean": "equal weights", "tam": "text scores", "pcr": "weights 1 − r"}


def ablation_grid(
    explanations: Sequence[WordMaps],
    words: Sequence[Which] | None = None,
    *,
    scale: Scale = "value",
    colormap: str = "inferno",
    width: float = PAGE,
) -> Figure:
    """Variants of `ercr` on one answer, such as `explain_all(..., methods=ercr.figures.ABLATION)` gives.

    By default two words with much evidence and two function words are shown, in absolute values, because the variants
    differ in the level of function words.
    """
    found = checked(explanations)
    with drawing():
        columns = [_column(explanation) for explanation in found]
        return draw_grid(columns, choose(found, words, functions=2), Shade(scale, colormap), width)


def _column(explanation: WordMaps) -> Column:
    settings = explanation.provenance.get("settings") or {}
    context = settings.get("context")
    if explanation.provenance.get("method") != "ercr" or context not in _CONTEXTS:
        raise InputError("An ablation compares variants of 'ercr': explain with methods=ercr.figures.ABLATION.")
    views = len(settings.get("scales") or (1.0,))
    parts = [part for part in ("ER" if views > 1 else "", _CONTEXTS[context]) if part]
    name = (
        " + ".join(parts) if len(parts) == 2 else f"{parts[0]} only" if parts in (["ER"], ["PCR"]) else "".join(parts)
    )
    return Column(name or "Baseline", explanation, (f"{views} view{'s' * (views > 1)}", _WEIGHTS[context]))
