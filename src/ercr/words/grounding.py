"""Whether a word was seen in the picture or guessed, and what says so; plain data and how words share it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ercr.image.geometry import Floats
from ercr.words.calibration import Calibration, Verdict

_LOGARITHMIC = ("rank", "probability", "last_rank", "last_probability")  # signals whose logarithm is weighed
_LEAST = 1e-30
_WEIGHED = ("text",)  # the effect that is weighed, where it was measured; else the first one by name
# what the values of a calibration are about, for people; those of the lens together say what the picture spells
_ABOUT = {
    "effect": "the image effect",
    "lens": "what the image spells",
    "likely.size": "what the image spells",
    "focus": "the focus",
    "chosen": "the model’s own choice",
    "chosen.entropy": "the model’s doubt",
    "chosen.lead": "its rivals",
    "log_probability": "its probability",
    "likely": "its probability",
}
_ALIKE = "function"  # moves all words that could name something alike
WITHOUT = "without."  # begins the names of log-probabilities of words that were read without the picture


@dataclass(frozen=True)
class Grounding:
    """What speaks for a word having been seen. All numbers can be compared between words, pictures and methods."""

    seen: float  # share of such words whose thing is in the picture, 0..1
    verdict: Verdict
    content: bool  # whether the word could name something; "the" or "," could not
    probability: float  # of the word, by the model itself
    image_effect: Mapping[str, float]  # log P with the picture less log P without it, in nats, by what stood instead
    lens_rank: int | None = None  # best rank of the word among all words at any visual token, over layers; 1 is first
    lens_probability: float | None = None  # its highest probability there
    focus: float | None = None  # how compact the evidence is that earlier words do not share, 0..1
    parts: Mapping[str, float] = field(default_factory=dict)  # what each measured value adds to the calibration's sum

    @property
    def moves(self) -> dict[str, float]:
        """What raised and lowered the sum, in words; the most first."""
        found: dict[str, float] = {}
        for name, value in self.parts.items():
            if name == _ALIKE:
                continue
            about = _ABOUT.get(name) or _ABOUT.get(name.split(".")[0], name)
            found[about] = found.get(about, 0.0) + value
        return dict(sorted(found.items(), key=lambda move: -abs(move[1])))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "image_effect": dict(self.image_effect), "parts": dict(self.parts)}


@dataclass(frozen=True, eq=False)
class Signals:
    """What was measured of the answer's tokens, by name: one number for each, from the row of the first on."""

    first: int
    values: Mapping[str, Floats]  # [R]
    calibration: Calibration

    def word(self, rows: Sequence[int], log_probabilities: Sequence[float], content: bool) -> Grounding:
        """The grounding of the word that the tokens of these rows make up."""
        places = [row - self.first for row in rows]
        total = sum(log_probabilities)
        effect = {
            name.removeprefix(WITHOUT): total - float(column[places].sum())
            for name, column in self.values.items()
            if name.startswith(WITHOUT)
        }
        # the first token decides which word it will be
        lead = {name: float(column[places[0]]) for name, column in self.values.items() if not name.startswith(WITHOUT)}
        seen, parts = self.calibration.seen(features(total, effect, lead, content))
        rank = lead.get("lens.rank")
        return Grounding(
            seen=seen,
            verdict=self.calibration.verdict(seen),
            content=content,
            probability=math.exp(total),
            image_effect=effect,
            lens_rank=None if rank is None else round(rank),
            lens_probability=lead.get("lens.probability"),
            focus=lead.get("focus"),
            parts=parts,
        )


def features(
    log_probability: float, effect: Mapping[str, float], lead: Mapping[str, float], content: bool = True
) -> dict[str, float]:
    """The values that a calibration may weigh, by name, of a word and its first token."""
    likely = math.exp(min(log_probability, 0.0) / 2)
    found = {"log_probability": log_probability, "likely": likely, "function": float(not content)}
    found |= {f"effect.{kind}": nats for kind, nats in effect.items()}
    if effect:
        found["effect"] = effect[min(effect, key=lambda kind: (kind not in _WEIGHED, kind))]
    for name, value in lead.items():
        found[name] = value
        head, _, last = name.rpartition(".")
        if last in _LOGARITHMIC:
            found[f"{head}.log_{last}"] = math.log(max(value, _LEAST))
    if {"chosen", "entropy"} <= lead.keys():  # a model that says what it sees badly hesitates before its own words
        found["chosen.entropy"] = lead["chosen"] * lead["entropy"]
    if {"chosen", "lens.lead"} <= lead.keys():
        found["chosen.lead"] = lead["chosen"] * lead["lens.lead"]
    if "lens.size" in lead:  # of words that the model would say anyway, the effect tells little and this tells more
        found["likely.size"] = likely * lead["lens.size"]
    return found


def joined(groundings: Sequence[Grounding]) -> Grounding | None:
    """The grounding of several words together: as well seen as the least seen of those that could name something."""
    named = [one for one in groundings if one.content] or list(groundings)
    if not named:
        return None
    least = min(named, key=lambda one: one.seen)
    kinds = least.image_effect.keys()
    return Grounding(
        seen=least.seen,
        verdict=least.verdict,
        content=any(one.content for one in groundings),
        probability=math.prod(one.probability for one in groundings),
        image_effect={kind: sum(one.image_effect[kind] for one in groundings) for kind in kinds},
        lens_rank=max((one.lens_rank for one in named if one.lens_rank is not None), default=None),
        lens_probability=min((one.lens_probability for one in named if one.lens_probability is not None), default=None),
        focus=min((one.focus for one in named if one.focus is not None), default=None),
        parts=least.parts,
    )
