"""The rules by which an answer is scored: two presets, and one option for every rule; computes nothing.

`tam` gives the scores of TAM's public evaluation code (Li et al., ICCV 2025), including its errors, because published
results were computed with them. `clean` corrects every one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from ercr.errors import InputError, nearest

PRESETS: dict[str, dict[str, str]] = {
    "tam": {},
    "clean": {
        "end_token": "drop",
        "mismatch": "score",
        "split": "character",
        "match": "exact",
        "merge": "words",
        "place": "seen",
        "background": "noun",
        "empty": "zero",
        "masks": "ids",
        "rouge": "rouge-score",
    },
}
# the behaviour before these options existed: older runs do not store them
_FORMERLY = {name: PRESETS["clean"][name] for name in ("background", "empty", "masks", "rouge")}
# every option, its values and what each does; the first value is the public code's
OPTIONS: dict[str, dict[str, str]] = {
    "end_token": {
        "glue": "the end-of-sequence token belongs to the last word",
        "drop": "the end-of-sequence token is left out",
    },
    "mismatch": {
        "skip": "words are read from the re-tokenised answer; if it has another length, the answer is left out",
        "score": "words are read from the generated tokens",
    },
    "split": {
        "token": "a token that is nothing but punctuation starts a word, so dog's is one word",
        "character": "a token that begins with punctuation starts a word",
    },
    "match": {
        "any": "the last category with the noun in its name",
        "exact": "a category that is the noun alone, else the first with the noun in its name",
        "synonyms": "as exact, and other words for some categories (man for person)",
    },
    "merge": {
        "list": "after two neighbours of one category the last two scores of the list are merged, of any words",
        "words": "neighbours of one category count once",
    },
    "place": {
        "stretch": "maps are stretched over the whole mask, also where the model saw a part of the image",
        "seen": "maps cover the part of the image that the model saw; the rest counts as 0",
    },
    "background": {
        "drop": "a noun that names a category with id 0 does not count as a noun: it gives no threshold",
        "noun": "no noun names id 0, which marks the background of label pictures",
    },
    "empty": {
        "nan": "an empty map has no precision (NaN), and then the dataset has none either",
        "zero": "an empty map has precision 0",
    },
    "masks": {
        "grey": "label pictures are read in grey, as OpenCV does: a palette's colours, the upper 8 of 16 bits",
        "ids": "label pictures are read as stored: a palette's indices, all 16 bits",
    },
    "rouge": {
        "rouge": "ROUGE-L by the package rouge",
        "rouge-score": "ROUGE-L by the package rouge-score",
    },
    "subword": {
        "max": "the best token's IoU and the highest threshold represent a word",
        "mean": "the mean over a word's tokens",
        "first": "a word's first token",
    },
}


@dataclass(frozen=True)
class Protocol:
    """How words are found, matched, merged and scored. The defaults are the preset `tam`."""

    end_token: Literal["glue", "drop"] = "glue"
    mismatch: Literal["skip", "score"] = "skip"
    split: Literal["token", "character"] = "token"
    match: Literal["any", "exact", "synonyms"] = "any"
    merge: Literal["list", "words"] = "list"
    place: Literal["stretch", "seen"] = "stretch"
    background: Literal["drop", "noun"] = "drop"
    empty: Literal["nan", "zero"] = "nan"
    masks: Literal["grey", "ids"] = "grey"
    rouge: Literal["rouge", "rouge-score"] = "rouge"
    subword: Literal["max", "mean", "first"] = "max"

    def __post_init__(self) -> None:
        for name, values in OPTIONS.items():
            value = getattr(self, name)
            if value not in values:
                known = ", ".join(values)
                raise InputError(f"{name} must be one of {known}, not {value!r}.{nearest(str(value), values)}")

    @classmethod
    def preset(cls, name: str) -> Protocol:
        """`tam` or `clean`."""
        if name not in PRESETS:
            raise InputError(f"There is no protocol {name!r}; there are {', '.join(PRESETS)}.{nearest(name, PRESETS)}")
        return cls(**PRESETS[name])  # type: ignore[arg-type]

    @classmethod
    def parse(cls, text: str) -> Protocol:
        """A preset with options changed, such as `tam`, `clean,match=synonyms` or `subword=mean`."""
        first, *rest = [part.strip() for part in text.split(",")]
        if "=" in first:
            first, rest = "tam", [first, *rest]
        changes = {}
        for part in rest:
            name, sign, value = (piece.strip() for piece in part.partition("="))
            if not sign:
                raise InputError(f"Write options after the preset as name=value, such as subword=mean, not {part!r}.")
            if name not in OPTIONS:
                known = ", ".join(OPTIONS)
                raise InputError(f"A protocol has no option {name!r}; it has {known}.{nearest(name, OPTIONS)}")
            changes[name] = value
        return replace(cls.preset(first), **changes)  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Protocol:
        """The inverse of `to_dict`; the preset follows from the options."""
        known = {**_FORMERLY, **data}
        return cls(**{f.name: known[f.name] for f in fields(cls) if f.name in known})

    @property
    def base(self) -> str:
        """The preset with the fewest differing options."""
        return min(PRESETS, key=lambda name: len(self._changes(name)))

    def _changes(self, name: str) -> dict[str, str]:
        base = Protocol.preset(name)
        return {option: getattr(self, option) for option in OPTIONS if getattr(self, option) != getattr(base, option)}

    def __str__(self) -> str:
        """The shortest text that `parse` reads back, such as `tam,subword=mean`."""
        return ",".join([self.base, *(f"{name}={value}" for name, value in self._changes(self.base).items())])

    def describe(self) -> str:
        """One line per option: its value and what that means."""
        lines = [f"  {name}={getattr(self, name)}: {values[getattr(self, name)]}" for name, values in OPTIONS.items()]
        return "\n".join([f"protocol {self}", *lines])

    def to_dict(self) -> dict[str, str]:
        """For provenance: the preset, the text form and every option."""
        return {"preset": self.base, "text": str(self), **asdict(self)}
