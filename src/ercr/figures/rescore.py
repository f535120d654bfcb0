"""Probability of a word when pixels are deleted or inserted; the only part of figures that runs a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ercr.figures.choice import Chosen, checked, choose
from ercr.metrics.faithfulness import CURVE, Baseline, auc, baseline_image, perturbed

if TYPE_CHECKING:
    from ercr.explaining.explainer import Explainer
    from ercr.words import WordMaps


@dataclass(frozen=True)
class Response:
    """A word's log-probability given the text before it, with growing shares of the image deleted or inserted."""

    explanation: WordMaps
    word: Chosen
    shares: tuple[float, ...]  # of the pixels, highest in the map first
    deleted: tuple[float, ...]
    inserted: tuple[float, ...]
    baseline: Baseline  # replaces missing pixels

    def area(self, which: str) -> float:
        """Mean probability along the curve `deleted` (lower is better) or `inserted` (higher is better)."""
        return float(auc(np.exp(getattr(self, which)), self.shares))


def responses(
    explainer: Explainer,
    explanations: Sequence[WordMaps],
    word: Any = None,
    *,
    prompt: Any = None,
    shares: Sequence[float] = CURVE,
    baseline: Baseline = "mean",
    batch_size: int = 16,
) -> list[Response]:
    """Score one word of the answer under pictures perturbed by each explanation's map.

    `prompt` is needed for conversations of several turns; by default it is the explanation's prompt.
    """
    found = checked(explanations)
    chosen = choose(found, None if word is None else [word])[0]
    first = found[0]
    image = np.asarray(first.image.rgb)
    blank = baseline_image(image, baseline)
    inner = [share for share in shares if 0 < share < 1]
    pictures = [image, blank]
    for explanation in found:
        heat = explanation.geometry.to_pixels(chosen.map(explanation))
        deleted, inserted, _ = perturbed(image, heat, inner, blank)
        pictures += [*deleted, *inserted]
    answer = [token for token in first.text_tokens if token.kind == "answer"]
    own = [index for index, token in enumerate(answer) if token.row in chosen.rows]
    ids = [token.id for token in answer]
    asked = first.prompt if prompt is None else prompt
    logs = explainer.answer_log_probabilities(pictures, asked, ids, batch_size)[:, own].sum(1)
    made = []
    for number, explanation in enumerate(found):
        start = 2 + 2 * len(inner) * number
        lost, gained = logs[start : start + len(inner)], logs[start + len(inner) : start + 2 * len(inner)]
        ends = float(logs[0]), float(logs[1])
        curves = _with_ends(shares, lost, *ends), _with_ends(shares, gained, *reversed(ends))
        made.append(Response(explanation, chosen, tuple(shares), *curves, baseline))
    return made


def _with_ends(shares: Sequence[float], inner: Any, at_none: float, at_all: float) -> tuple[float, ...]:
    """Scores at all shares: nothing deleted is the whole picture, everything deleted the blank one."""
    values = iter(float(value) for value in inner)
    return tuple(next(values) if 0 < share < 1 else at_none if share <= 0 else at_all for share in shares)
