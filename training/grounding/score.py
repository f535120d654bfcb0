"""Scores rows of the task `grounding` by a calibration; a table of one model on one dataset as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ercr.evaluate import Run
from ercr.evaluate.grounding_scores import Mask, Words, groups, verdicts
from ercr.metrics.detection import Told, reliability, roc
from ercr.report.sections.grounding import LABELS
from ercr.words.calibration import Calibration

from .fit import values_of

_CURVED = ("names", "own nouns")


def rescored(words: Words, calibration: Calibration, listed: bool = True) -> Words:
    """The same rows with `seen` and verdicts of a calibration, by the package's own code.

    Without `listed`, function words are read as if they were on no list.
    """
    found = values_of(words)
    found["function"] = found["function"] * listed
    seen = [
        calibration.seen({name: float(column[at]) for name, column in found.items()})[0]
        for at in range(len(words["seen"]))
    ]
    verdict = np.asarray([calibration.verdict(value) for value in seen], object)
    return Words({**words.columns, "seen": np.asarray(seen), "verdict": verdict})


def scored(runs: Sequence[Run], calibration: Calibration, beside: Sequence[Calibration] = ()) -> dict[str, Any]:
    """Every score of every signal; further runs add signals that were read on fewer pictures.

    `beside` are other calibrations, of which only `seen` is scored.
    """
    first, *rest = (rescored(Words.of(run.table()), calibration) for run in runs)
    settings = runs[0].settings
    found = {
        "model": settings["model"]["name"],
        "dtype": settings["model"].get("dtype"),
        "dataset": str(settings["dataset"]["spec"]).partition(":")[0],
        "style": "unseen" if ",style=" in settings["dataset"]["spec"] else "usual",
        "pictures": len(set(first["sample"])),
        "calibration": calibration.name,
        "groups": _groups(first),
        "verdicts": {name: _rounded(asdict(one)) for name, one in verdicts(first).items()},
        "curves": {
            group: _curves(first, mask)
            for group, mask in groups(first).items()
            if group in _CURVED and first.told("seen", mask) is not None
        },
    }
    unlisted = verdicts(rescored(Words.of(runs[0].table()), calibration, listed=False))
    if "function_words_seen" in unlisted:
        found["verdicts"]["function_words_seen_without_list"] = _rounded(asdict(unlisted["function_words_seen"]))
    others = {one.name: rescored(first, one) for one in beside}
    found["beside"] = {name: _seen_alone(words) for name, words in others.items()}
    for words in rest:
        found["fewer"] = {"pictures": len(set(words["sample"])), "groups": _groups(words)}
    return found


def _seen_alone(words: Words) -> dict[str, Any]:
    known = ((group, words.told("seen", mask)) for group, mask in groups(words).items() if group in _CURVED)
    return {
        **{group: _of_seen(told) for group, told in known if told is not None},
        "verdicts": {name: _rounded(asdict(one)) for name, one in verdicts(words).items()},
    }


def _of_seen(told: Told) -> dict[str, Any]:
    return {
        name: _rounded(asdict(told.interval(score)))
        for name, score in {"auroc": told.auroc, "calibration_error": told.calibration_error}.items()
    }


def _groups(words: Words) -> dict[str, Any]:
    found = {}
    for group, mask in groups(words).items():
        seen = words.told("seen", mask)
        if seen is None:
            continue
        signals = {signal: _scores(words, signal, mask, seen) for signal in LABELS if signal in words.signals}
        found[group] = {
            "words": len(seen),
            "there": int(seen.there.sum()),
            "signals": {name: scores for name, scores in signals.items() if scores},
        }
    return found


def _scores(words: Words, signal: str, mask: Mask, seen: Told) -> dict[str, Any]:
    """AUROC and average precision with intervals, and the lead of `seen` over the signal."""
    told = words.told(signal, mask)
    if told is None:
        return {}
    scores: dict[str, Any] = {
        "auroc": told.interval(told.auroc),
        "average_precision": told.interval(told.average_precision),
    }
    if signal == "seen":
        scores |= {"calibration_error": told.interval(told.calibration_error), "accuracy": told.interval(told.accuracy)}
    elif len(told) == len(seen):
        scores["lead"] = seen.over(told)
    return {name: _rounded(asdict(one)) for name, one in scores.items()}


def _rounded(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (round(value, 4) if np.isfinite(value) else None) if isinstance(value, float) else value
        for name, value in found.items()
    }


def _curves(words: Words, mask: Mask) -> dict[str, Any]:
    """The ROC of `seen` and of the best signals, and how `seen` agrees with shares."""
    told = {signal: found for signal in LABELS if (found := words.told(signal, mask)) is not None}
    best = sorted((name for name in told if name != "seen"), key=lambda name: -told[name].auroc())[:4]
    at = np.linspace(0, 1, 51)
    points = reliability(told["seen"])
    return {
        "roc": {name: [round(float(x), 4) for x in np.interp(at, *roc(told[name]))] for name in ("seen", *best)},
        "reliability": [[round(float(x), 4) for x in (mean, s.value, s.low, s.high)] for mean, s in points],
    }
