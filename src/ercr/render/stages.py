"""The steps of a method as maps of every word, as far as the explanation holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ercr.image.geometry import Floats

if TYPE_CHECKING:
    from ercr.words import Word, WordMaps

_SAME = 1.5 / 255  # maps closer than this look alike on a screen
_FLAT = 1e-5  # spans of a map below this share of its values are rounding


@dataclass(frozen=True)
class Stage:
    """One step: a key shared by methods, how to name and explain it, and the words' maps [W, h, w].

    All maps are on one scale: 1 is the highest value that any word of the answer reaches in the final maps.
    """

    key: str
    label: str
    about: str
    maps: Floats


def stages(explanation: WordMaps, words: tuple[Word, ...]) -> list[Stage]:
    """The final maps and, before them, the steps that look different from the ones after them."""
    method = str(explanation.provenance.get("method", ""))
    rows = [token.row for word in words for token in word.tokens]
    result = np.stack([word.lit for word in words]) if words else explanation.maps[:0]
    found = [Stage("result", _RESULTS.get(method, "Result"), "The final maps.", result)]
    seen = [explanation.maps[rows]]
    before = explanation.stages.get("evidence")
    if before is not None and explanation.alpha is not None and explanation.beta is not None:
        subtracted = _per_word(explanation, words, _subtracted(explanation, before), _beyond(before))
        found.insert(0, Stage("context", "− context", _CONTEXT, subtracted))
    for name in sorted(explanation.stages, key=_order, reverse=True):
        maps = explanation.stages[name]
        if rows and all(_differ(maps[rows], other) for other in seen):
            label, about = _name(method, name)
            found.insert(0, Stage(name, label, about, _per_word(explanation, words, maps, _beyond(maps))))
            seen.append(maps[rows])
    return found


def _subtracted(explanation: WordMaps, before: Floats) -> Floats:
    """beta times the context map of every row [S, h, w], as the method made it (eqs. 14 to 17)."""
    assert explanation.alpha is not None
    assert explanation.beta is not None
    context = explanation.alpha @ before.reshape(len(before), -1)
    return np.asarray((explanation.beta[:, None] * context).reshape(before.shape), np.float32)


def _per_word(explanation: WordMaps, words: tuple[Word, ...], maps: Floats, unit: bool) -> Floats:
    """Maps of tokens as maps of words on the answer's scale; unless in the method's `unit`, they were stretched."""
    if not words:
        return np.asarray(maps[:0], np.float32)
    factors = np.ones(len(maps)) if unit or explanation.scale is None else explanation.scale
    scaled = np.clip(maps, 0.0, None) * (factors / explanation.strongest)[:, None, None]
    return np.asarray(np.stack([scaled[[token.row for token in word.tokens]].max(0) for word in words]), np.float32)


def _beyond(maps: Floats) -> bool:
    """Whether maps were never stretched to 0..1, so that they are in the method's unit."""
    return float(maps.max(initial=0.0)) > 1 + _FLAT


def _differ(maps: Floats, others: Floats) -> bool:
    """Whether any map looks different once both are brightened to the full range; flat maps look alike."""

    def bright(values: Floats) -> Floats:
        low, high = values.min((1, 2), keepdims=True), values.max((1, 2), keepdims=True)
        flat = high - low <= _FLAT * np.abs(high)
        return np.asarray(np.where(flat, 0.0, (values - low) / np.where(flat, 1.0, high - low)))

    return bool(np.abs(bright(maps) - bright(others)).max() > _SAME)


_CONTEXT = "What was taken away: the earlier words’ maps, weighted by α and fitted by β. Those words are underlined."
_RESULTS = {"contrast": "Contrast", "ercr": "ERCR", "tam": "TAM"}
_NAMES = {
    "raw": ("Raw", "Maps as read from the model."),
    "evidence": ("Evidence", "Maps before anything was subtracted."),
}
_BY_METHOD = {
    ("contrast", "evidence"): (
        "ER above rivals",
        "Evidence of all views combined, counted from where the word’s rivals stand; nothing subtracted yet.",
    ),
    ("ercr", "evidence"): ("ER", "Evidence of all views combined; nothing subtracted yet."),
    ("tam", "evidence"): ("Logit lens", "How strongly each visual token spells the word; nothing subtracted yet."),
}


def _name(method: str, stage: str) -> tuple[str, str]:
    known = _BY_METHOD.get((method, stage)) or _NAMES.get(stage)
    return known or (stage.capitalize(), f"The method's step {stage!r}.")


def _order(stage: str) -> tuple[int, str]:
    return {"raw": 0, "evidence": 2}.get(stage, 1), stage
