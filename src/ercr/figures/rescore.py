"""Probability of a word when pixels are deleted or inserted; the only part of figures that runs a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ercr.figures.choice import Chosen, checked, choose
from ercr.metrics.faithfulness import CURVE, Baseline, auc, curves

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
    answer = [token for token in first.text_tokens if token.kind == "answer"]
    own = [index for index, token in enumerate(answer) if token.row in chosen.rows]
    ids = [token.id for token in answer]
    asked = first.prompt if prompt is None else prompt

    def score(pictures: Any) -> Any:
        return explainer.answer_log_probabilities(pictures, asked, ids, batch_size)[:, own].sum(1)

    maps = [(explanation.alone()[1], chosen.map(explanation)) for explanation in found]
    scored = curves(np.asarray(first.alone()[0].rgb), maps, score, shares, baseline)
    return [
        Response(explanation, chosen, tuple(shares), tuple(deleted.tolist()), tuple(inserted.tolist()), baseline)
        for explanation, deleted, inserted in zip(found, scored.deleted, scored.inserted, strict=True)
    ]
