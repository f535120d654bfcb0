"""Fits a calibration of `seen`: a logistic regression of few standardised and limited values, and two thresholds.

Its words are names of present and absent things, nouns of captions of the picture and of another one, the model's own
nouns, and its own function words, which name nothing and so count as not there. Each kind of word has a fixed share of
the weight. The thresholds are set on the names, with predictions for pictures that the sum was not fitted on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.evaluate import Run
from ercr.evaluate.grounding_scores import Words
from ercr.metrics.detection import Told
from ercr.words.calibration import Calibration, Part

FEATURES = ("effect", "lens.log_probability", "lens.size", "likely", "likely.size", "function")
SHARES = {"names": 0.4, "captions": 0.2, "own": 0.3, "function": 0.1}  # of the weight
# shares of wrong verdicts at which the thresholds are set: of names, and of function words
ABSENT_SEEN, PRESENT_GUESSED, FUNCTION_SEEN = 0.07, 0.10, 0.03
_USUAL = (0.3, 0.6)
_LIMIT = 3.0  # standard deviations
_MOST = {"effect": 1.5}  # more nats than these tell nothing more: the model's own words nearly all have them
_RIDGE = 1.0  # words
_FEWEST = 10  # own nouns that are not there, with fewer of which own nouns would only teach that they always are
_FOLDS = 5
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Examples:
    """Words with their values, whether their things were there, their weights and pictures."""

    values: Floats  # [n, features]
    there: NDArray[np.bool_]
    weights: Floats
    images: NDArray[Any]
    names: NDArray[np.bool_]  # whether it is a name that was asked about
    function: NDArray[np.bool_]  # whether it is a function word


def values_of(words: Words) -> dict[str, Floats]:
    """The values that a calibration may weigh, by name, as `ercr.words.grounding.features` makes them of one word."""

    def column(name: str) -> Floats:
        return np.asarray(words[name], np.float64)

    likely = np.exp(np.minimum(column("log_probability"), 0) / 2)
    return {
        "effect": column("effect_text"),
        "log_probability": column("log_probability"),
        "lens.log_rank": np.log(column("lens_rank")),
        "lens.log_probability": np.log(np.maximum(column("lens_probability"), 1e-30)),
        "lens.size": column("lens_size"),
        "focus": column("focus"),
        "function": 1.0 - _true(words["content"]),
        "likely": likely,
        "likely.size": likely * column("lens_size"),
    }


def examples(run: Run, features: Sequence[str] = FEATURES) -> Examples:
    """The judged words of a run and its function words, weighted by their kinds."""
    words = Words.of(run.table())
    found, source = values_of(words), words["source"]
    found |= {name: np.minimum(found[name], most) for name, most in _MOST.items()}
    function = (source == "own") & (words["kind"] == "function") & ~_true(words["content"])
    kinds = {
        "names": (source == "name") & words.judged,
        "captions": (source == "given") & words.judged,
        "own": (source == "own") & words.judged,
        "function": function,
    }
    if (kinds["own"] & ~_true(words["there"])).sum() < _FEWEST:
        del kinds["own"]
    weights = sum(SHARES[kind] * mask / max(mask.sum(), 1) for kind, mask in kinds.items())
    kept = np.asarray(weights) > 0
    there = _true(words["there"]) & ~function
    values = np.stack([found[name] for name in features], 1)
    images = np.asarray([f"{run.path.name}/{name}" for name in words["sample"]])
    chosen = (values, there, np.asarray(weights), images, kinds["names"], function)
    return Examples(*(column[kept] for column in chosen))


def together(parts: Sequence[Examples], shares: Sequence[float]) -> Examples:
    """All words, with a share of the weight for each part."""
    scaled = [replace(part, weights=part.weights * share) for part, share in zip(parts, shares, strict=True)]
    return Examples(*(np.concatenate([vars(part)[name] for part in scaled]) for name in vars(parts[0])))


def fit(name: str, data: Examples, features: Sequence[str], facts: Mapping[str, Any]) -> Calibration:
    """A calibration with its thresholds."""
    held_out = np.zeros(len(data.there))
    fold = _fold(data.images)
    for at in range(_FOLDS):
        own = _logistic(data, fold != at)
        held_out[fold == at] = own.predict(data.values[fold == at])
    below, above = thresholds(data, held_out)
    model = _logistic(data, np.ones(len(data.there), bool))
    parts = tuple(_part(feature, model, at) for at, feature in enumerate(features))
    told = Told(held_out[data.names], data.there[data.names], data.images[data.names].tolist())
    facts = {
        **facts,
        "words": len(data.there),
        "pictures": len(set(data.images)),
        "held-out AUROC of names": round(float(told.auroc()), 3),
    }
    return Calibration(name, parts, round(model.bias, 5), below, above, (), facts)


def _part(feature: str, model: _Logistic, at: int) -> Part:
    mean, scale, weight = (round(float(column[at]), 5) for column in (model.mean, model.scale, model.weights))
    high = (_MOST.get(feature, np.inf) - mean) / scale
    return Part(feature, mean, scale, weight, -_LIMIT, round(min(high, _LIMIT), 5))


def thresholds(data: Examples, seen: Floats) -> tuple[float, float]:
    """Below which a word is guessed and from which it is seen, by the shares of wrong verdicts that are accepted.

    Where hardly any verdict is wrong, the usual ones stay: 0.3 and 0.6.
    """
    absent, present = (seen[data.names & (data.there == there)] for there in (False, True))
    function = seen[data.function]
    above = max(_USUAL[1], float(np.quantile(absent, 1 - ABSENT_SEEN)))
    if len(function):
        above = max(above, float(np.quantile(function, 1 - FUNCTION_SEEN)))
    below = min(_USUAL[0], float(np.quantile(present, PRESENT_GUESSED)))
    return round(below, 3), round(above, 3)


@dataclass(frozen=True, eq=False)
class _Logistic:
    mean: Floats
    scale: Floats
    weights: Floats
    bias: float

    def predict(self, values: Floats) -> Floats:
        standard = np.clip((values - self.mean) / self.scale, -_LIMIT, _LIMIT)
        return np.asarray(1 / (1 + np.exp(-(self.bias + standard @ self.weights))))


def _logistic(data: Examples, chosen: NDArray[np.bool_]) -> _Logistic:
    """Weighted logistic regression with a small ridge, by Newton's method."""
    values, there, weights = data.values[chosen], data.there[chosen].astype(float), data.weights[chosen]
    weights = weights * len(weights) / weights.sum()
    mean = np.average(values, axis=0, weights=weights)
    scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    standard = np.clip((values - mean) / scale, -_LIMIT, _LIMIT)
    design = np.concatenate([standard, np.ones((len(values), 1))], 1)
    ridge = np.diag([_RIDGE] * values.shape[1] + [0.0])
    found = np.zeros(design.shape[1])
    for _ in range(50):
        shares = 1 / (1 + np.exp(-design @ found))
        slope = design.T @ (weights * (shares - there)) + ridge @ found
        curvature = design.T @ (design * (weights * shares * (1 - shares))[:, None]) + ridge
        step = np.linalg.solve(curvature, slope)
        found = found - step
        if np.abs(step).max() < 1e-9:
            break
    return _Logistic(mean, scale, found[:-1], float(found[-1]))


def _fold(images: NDArray[Any]) -> NDArray[np.int64]:
    names, index = np.unique(images, return_inverse=True)
    return np.asarray(np.random.default_rng(0).permutation(len(names))[index] % _FOLDS)


def _true(column: Any) -> NDArray[np.bool_]:
    return np.array([value is True or value == 1 for value in column], bool)


def rescored(words: Words, calibration: Calibration) -> Words:
    """The same rows with `seen` and verdicts of a calibration, by the package's own code."""
    found = values_of(words)
    seen = np.asarray(
        [
            calibration.seen({name: float(column[at]) for name, column in found.items()})[0]
            for at in range(len(words["seen"]))
        ]
    )
    verdict = np.asarray([calibration.verdict(value) for value in seen], object)
    return Words({**words.columns, "seen": seen, "verdict": verdict})
