"""Scores of the task `grounding` from its rows: how well `seen` and every signal tell what is there; reads no file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ercr.evaluate.schema import SIGNALS
from ercr.metrics.detection import Told
from ercr.metrics.pooled import Interval

LOWER = frozenset(("entropy", "lens_rank", "lens_last_rank"))  # signals that are low where a thing is there
KINDS = ("random", "popular", "together")  # how absent names were drawn
LARGE = 0.1  # share of the picture from which a thing is large

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Words:
    """The rows of a run as columns."""

    columns: Mapping[str, Any]

    @classmethod
    def of(cls, table: pa.Table) -> Words:
        found = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
        return cls({name: column[found["status"] == "ok"] for name, column in found.items()})

    def __getitem__(self, name: str) -> Any:
        return self.columns[name]

    def told(self, signal: str, chosen: Mask) -> Told | None:
        """A signal over some judged words; None if it tells nothing because one kind of word is missing."""
        values = np.asarray(self[signal], float)
        known = chosen & self.judged & np.isfinite(values)
        sign = -1.0 if signal in LOWER else 1.0
        images = [str(name) for name in self["sample"][known]]
        found = Told(sign * values[known], np.asarray(self["there"][known], bool), images)
        return found if len(found) and found.both else None

    @property
    def judged(self) -> Mask:
        return np.array([value is not None and value == value for value in self["there"]], bool)

    @property
    def signals(self) -> list[str]:
        """`seen` and every signal that was measured."""
        return ["seen", *(name for name in SIGNALS if np.isfinite(np.asarray(self[name], float)).any())]


def groups(words: Words) -> dict[str, Mask]:
    """The groups of words that are scored: names, and the nouns of the model's own answers."""
    own, name = words["source"] == "own", words["source"] == "name"
    drawn, by = words["drawn"], words["by"]
    present = name & (drawn == "present")
    found = {"names": name}
    found |= {f"names, absent ones {kind}": present | (name & (drawn == kind)) for kind in KINDS}
    large = present & (np.asarray(words["area"], float) >= LARGE)
    found |= {"names of large things, absent ones random": large | (name & (drawn == "random"))}
    found |= {"nouns of captions, this picture's and another's": (words["source"] == "given") & words.judged}
    nouns = own & words.judged
    place = np.asarray(words["word"], float) / np.maximum(np.asarray(words["words"], float), 1)
    again = np.asarray([bool(value) for value in words["repeated"]])
    found |= {
        "own nouns": nouns & (by != "neither"),
        "own nouns, also those without a category": nouns,
        "own nouns, first half of the answer": nouns & (by != "neither") & (place < 0.5),
        "own nouns, second half": nouns & (by != "neither") & (place >= 0.5),
        "own nouns, said for the first time": nouns & (by != "neither") & ~again,
        "own nouns, said before": nouns & (by != "neither") & again,
    }
    return found


def scores(table: pa.Table) -> dict[str, dict[str, dict[str, Any]]]:
    """AUROC and average precision of every signal for every group of words; of `seen` also how it is calibrated."""
    words = Words.of(table)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group, chosen in groups(words).items():
        own = {signal: told for signal in words.signals if (told := words.told(signal, chosen)) is not None}
        if own:
            found[group] = {signal: _plain(_scores(told, signal == "seen")) for signal, told in own.items()}
    found["verdicts"] = {"seen": _plain(verdicts(words))}
    return found


def _scores(told: Told, calibrated: bool) -> dict[str, Interval]:
    kinds = {"auroc": told.auroc, "average_precision": told.average_precision}
    if calibrated:
        kinds |= {"calibration_error": told.calibration_error, "accuracy": told.accuracy}
    return {name: told.interval(score) for name, score in kinds.items()}


def verdicts(words: Words) -> dict[str, Interval]:
    """Shares of words with a wrong verdict: absent ones that look seen, present ones that look guessed."""
    name, own = words["source"] == "name", words["source"] == "own"
    verdict, function = words["verdict"], (words["source"] == "own") & (words["kind"] == "function")
    there = np.array([value is True or value == 1 for value in words["there"]], bool)
    judged = words.judged
    images = [str(sample) for sample in words["sample"]]
    told = Told(np.zeros(len(images)), there, images)
    cases: Sequence[tuple[str, Mask, Mask]] = (
        ("absent_names_seen", verdict == "seen", name & judged & ~there),
        ("present_names_guessed", verdict == "guessed", name & judged & there),
        ("absent_own_nouns_seen", verdict == "seen", own & judged & ~there),
        ("present_own_nouns_guessed", verdict == "guessed", own & judged & there),
        ("function_words_seen", verdict == "seen", function),
    )
    return {key: told.share(chosen, among) for key, chosen, among in cases if among.any()}


def _plain(found: Mapping[str, Interval]) -> dict[str, Any]:
    def number(value: float) -> float | None:
        return None if math.isnan(value) else value

    return {name: {key: number(value) for key, value in asdict(one).items()} for name, one in found.items()}
