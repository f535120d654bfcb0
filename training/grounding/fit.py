"""Fits a calibration of `seen`: a logistic regression of few standardised and limited values, and two thresholds.

Weights that were set by hand are kept, times one number, unless fitted ones are clearly better on pictures that they
were not fitted on.

Its words are names of present and absent things, nouns of captions of the picture and of another one, the model's own
nouns, and its own function words, which name nothing and so count as not there. Each kind of word has a fixed share of
the weight. The thresholds are set on the names, with predictions for pictures that the sum was not fitted on.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ercr.evaluate import Run
from ercr.evaluate.grounding_scores import Words
from ercr.metrics.detection import Told
from ercr.words.calibration import Calibration, Part
from ercr.words.function_words import contents

PHOTOGRAPHS = (
    *("effect", "lens.size", "lens.mean"),
    *("lens.usual_size", "lens.usual_mean"),  # known only for models with a table of usual words
    *("chosen", "chosen.entropy", "chosen.lead", "function"),
)
# the last ones also depend on which word it is; no harm where every thing is drawn equally often, but in photographs
SCENES = (*PHOTOGRAPHS[:-1], "lens.log_probability", "likely", "likely.size", "function")
SHARES = {"names": 0.4, "captions": 0.2, "own": 0.3, "function": 0.1}  # of the weight
MATCHED = ("names", "captions")  # own nouns are too few: only some words are there in one picture and not in another
_KINDS = ("chosen", "function")  # features that say what kind of word it is, of which another share is there
# shares of wrong verdicts at which the thresholds are set: of names, and of function words
ABSENT_SEEN, PRESENT_GUESSED, FUNCTION_SEEN = 0.07, 0.10, 0.03
_USUAL = (0.3, 0.6)
_LIMIT = 3.0  # standard deviations
_MOST = {"effect": 1.5}  # more nats than these tell nothing more: the model's own words nearly all have them
_RIDGE = 1.0  # words
_FEWEST = 10  # own nouns that are not there, with fewer of which own nouns would only teach that they always are
_FOLDS = 5
_WORTHWHILE = 0.02  # AUROC of names, by which fitted weights must be better than those set by hand
_SCORE = "held-out AUROC of names"
Floats = NDArray[np.float64]
Facts = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Examples:
    """Words with their values, whether their things were there, their weights and pictures."""

    values: Floats  # [n, features]
    there: NDArray[np.bool_]
    weights: Floats
    matched: Floats  # the same, but of every word as much weight where it is there as where it is not
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
        "lens.mean": column("lens_mean"),
        "lens.usual_size": column("lens_usual_size"),
        "lens.usual_mean": column("lens_usual_mean"),
        "chosen": column("chosen"),
        "chosen.entropy": column("chosen") * column("entropy"),
        "chosen.lead": column("chosen") * column("lens_lead"),
        "focus": column("focus"),
        "function": _listed(words).astype(float),
        "likely": likely,
        "likely.size": likely * column("lens_size"),
    }


def examples(run: Run, features: Sequence[str], most: Mapping[str, float] = _MOST) -> Examples:
    """The judged words of a run and its function words, weighted by their kinds."""
    words = Words.of(run.table())
    found, source = values_of(words), words["source"]
    found |= {name: np.minimum(found[name], limit) for name, limit in most.items()}
    function = (source == "own") & (words["kind"] == "function") & (found["function"] > 0)
    kinds = {
        "names": (source == "name") & words.judged,
        "captions": (source == "given") & words.judged,
        "own": (source == "own") & words.judged,
        "function": function,
    }
    if (kinds["own"] & ~_true(words["there"])).sum() < _FEWEST:
        del kinds["own"]
    weights = np.asarray(sum(SHARES[kind] * mask / max(mask.sum(), 1) for kind, mask in kinds.items()))
    kept = weights > 0
    there = _true(words["there"]) & ~function
    matched = weights.copy()
    for kind in MATCHED:
        matched[kinds[kind]] = SHARES[kind] * _matched(words["text"][kinds[kind]], there[kinds[kind]])
    weights[kinds["captions"]] = 0  # how many of them are there says nothing of the words that people ask about
    values = np.stack([found[name] for name in features], 1)
    images = np.asarray([f"{run.path.name}/{name}" for name in words["sample"]])
    chosen = (values, there, weights, matched, images, kinds["names"], function)
    return Examples(*(column[kept] for column in chosen))


def _matched(texts: NDArray[Any], there: NDArray[np.bool_]) -> Floats:
    """Weights with which no word is there more often than another, so that which word it is tells nothing.

    Otherwise a fit learns how absent names were drawn, and that people and dogs are nearly always in Flickr8k.
    """
    _, word = np.unique([text.lower() for text in texts], return_inverse=True)
    true, false = (np.bincount(word, weights=kind) for kind in (there, ~there))
    each = np.where(there, false[word], true[word]) / (true + false)[word]
    return np.asarray(each / max(each.sum(), 1e-9))


def together(parts: Sequence[Examples], shares: Sequence[float]) -> Examples:
    """All words, with a share of the weight for each part."""
    scaled = [
        replace(part, weights=part.weights * share, matched=part.matched * share)
        for part, share in zip(parts, shares, strict=True)
    ]
    return Examples(*(np.concatenate([vars(part)[name] for part in scaled]) for name in vars(parts[0])))


def best(name: str, runs: Sequence[Run], shares: Sequence[float], by_hand: Calibration, facts: Facts) -> Calibration:
    """With weights that were set by hand, or fitted ones if these are better by more than a little."""
    hand = [*(part.name for part in by_hand.parts), "function"]
    drawn = all(str(run.settings["dataset"]["spec"]).startswith("scenes") for run in runs)
    wanted = SCENES if drawn else PHOTOGRAPHS
    known = [values_of(Words.of(run.table())) for run in runs]
    features = [name for name in wanted if all(np.isfinite(values[name]).any() for values in known)]
    ours = together([examples(run, features) for run in runs], shares)
    theirs = together([examples(run, hand, {}) for run in runs], shares)
    fitted, scaled = fit(name, ours, features, facts), scale(name, theirs, by_hand, facts)
    lead = fitted.fitted[_SCORE] - scaled.fitted[_SCORE]
    chosen, kind = (fitted, "fitted") if lead > _WORTHWHILE else (scaled, "set by hand")
    both = {"fitted": fitted.fitted[_SCORE], "set by hand": scaled.fitted[_SCORE]}
    told = {key: value for key, value in chosen.fitted.items() if key != _SCORE}
    return replace(chosen, fitted={**told, "weights": kind, _SCORE: both})


def fit(name: str, data: Examples, features: Sequence[str], facts: Facts) -> Calibration:
    """A calibration with fitted weights and its thresholds."""
    kinds = [at for at, feature in enumerate(features) if feature in _KINDS]
    model, below, above, found = _fitted(data, facts, lambda chosen: _in_two_steps(data, chosen, kinds))
    parts = tuple(_part(feature, model, at) for at, feature in enumerate(features))
    return Calibration(name, parts, round(model.bias, 5), below, above, (), found)


def scale(name: str, data: Examples, base: Calibration, facts: Facts) -> Calibration:
    """The weights of a calibration, times a fitted number; what being listed counts and thresholds are fitted, too."""
    parts = np.array([[part.mean, part.scale, part.weight, part.low, part.high] for part in base.parts]).T
    mean, spread, weight, low, high = parts
    total = np.clip((data.values[:, :-1] - mean) / spread, low, high) @ weight
    both = replace(data, values=np.stack([total, data.values[:, -1]], 1))
    model, below, above, found = _fitted(both, facts, lambda chosen: _logistic(both, chosen))
    slope = float(model.weights[0] / model.scale[0])
    scaled = tuple(replace(part, weight=round(slope * part.weight, 5)) for part in base.parts)
    bias = round(model.bias - slope * float(model.mean[0]), 5)
    return Calibration(name, (*scaled, _part("function", model, 1)), bias, below, above, (), found)


def _in_two_steps(data: Examples, chosen: NDArray[np.bool_], kinds: Sequence[int]) -> _Logistic:
    """Weights from matched words; their size, the constant and what kinds of words count from words as they come."""
    first = _logistic(replace(data, weights=data.matched), chosen)
    standard = np.clip((data.values - first.mean) / first.scale, -_LIMIT, _LIMIT)
    columns = [standard @ first.weights, *(standard[:, at] for at in kinds)]
    second = _logistic(replace(data, values=np.stack(columns, 1)), chosen, np.inf)
    slopes = second.weights / second.scale
    weights = first.weights * slopes[0]
    weights[list(kinds)] += slopes[1:]
    return _Logistic(first.mean, first.scale, weights, second.bias - float(slopes @ second.mean))


def _fitted(
    data: Examples, facts: Facts, fitting: Callable[[NDArray[np.bool_]], _Logistic]
) -> tuple[_Logistic, float, float, dict[str, Any]]:
    """The regression, its thresholds, and how well it does on pictures that it was not fitted on."""
    held_out = np.zeros(len(data.there))
    fold = _fold(data.images)
    for at in range(_FOLDS):
        held_out[fold == at] = fitting(fold != at).predict(data.values[fold == at])
    told = Told(held_out[data.names], data.there[data.names], data.images[data.names].tolist())
    found = {**facts, "words": len(data.there), "pictures": len(set(data.images))}
    model = fitting(np.ones(len(data.there), bool))
    return model, *thresholds(data, held_out), {**found, _SCORE: round(float(told.auroc()), 3)}


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


def _logistic(data: Examples, chosen: NDArray[np.bool_], limit: float = _LIMIT) -> _Logistic:
    """Weighted logistic regression with a small ridge, by Newton's method."""
    values, there, weights = data.values[chosen], data.there[chosen].astype(float), data.weights[chosen]
    weights = weights * len(weights) / weights.sum()
    mean = np.average(values, axis=0, weights=weights)
    scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    standard = np.clip((values - mean) / scale, -limit, limit)
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


def _listed(words: Words) -> NDArray[np.bool_]:
    """Whether each word is on the list of function words of its answer's language, by today's lists."""
    known: dict[str, dict[str, bool]] = {}
    for answer in set(words["answer"]):
        said = answer.split()
        known[answer] = dict(zip(map(_bare, said), contents(said), strict=True))
    return np.array(
        [
            not known[answer].get(_bare(text.split()[0]), any(map(str.isalpha, text)))
            for answer, text in zip(words["answer"], words["text"], strict=True)
        ],
        bool,
    )


def _bare(text: str) -> str:
    return text.lower().strip(string.punctuation)


def _true(column: Any) -> NDArray[np.bool_]:
    return np.array([value is True or value == 1 for value in column], bool)
