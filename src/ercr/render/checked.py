"""What `ercr check` prints: a table of an answer's words with verdict, number, bar and place; never runs a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table
from rich.text import Text

from ercr.printable import printable

if TYPE_CHECKING:
    from ercr.words import Grounding, Word, WordMaps

_BAR = 10  # characters
_STYLES = {"seen": "green", "unsure": "yellow", "guessed": "red"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def content_words(explanation: WordMaps) -> list[Word]:
    """The words of the answer that could name something, in their order."""
    return [word for word in explanation.words if word.grounding is not None and word.grounding.content]


def lowest(explanation: WordMaps) -> float | None:
    """The least seen of these words; None if there is none."""
    return min((word.grounding.seen for word in content_words(explanation) if word.grounding), default=None)


def words_table(explanation: WordMaps) -> Table:
    """A row for each word that could name something: what it is, how surely, from what, and where."""
    table = Table(
        Column("word"),
        Column("verdict"),
        Column("seen", justify="right"),
        Column("", no_wrap=True),
        Column("image effect", justify="right"),
        Column("lens rank", justify="right"),
        Column("where", overflow="fold"),
        box=None,
        pad_edge=False,
        header_style="dim",
    )
    for word in content_words(explanation):
        found = word.grounding
        assert found is not None
        style, spot = _STYLES[found.verdict], word.spot
        table.add_row(
            Text(printable(word.text), style="bold"),
            Text(found.verdict, style=style),
            f"{found.seen:.2f}",
            Text(bar(found.seen), style=style),
            _effect(found),
            "–" if found.lens_rank is None else f"{found.lens_rank:,}",
            "–" if spot is None or found.verdict == "guessed" else f"{spot} {list(spot.box)}",
        )
    return table


def bar(share: float) -> str:
    """A bar of characters."""
    eighths = round(8 * _BAR * min(max(share, 0.0), 1.0))
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(_BAR, "·")


def _effect(found: Grounding) -> str:
    """The effect that is weighed, and others behind it."""
    return ", ".join(
        f"{nats:+.1f}" if kind == "text" else f"{nats:+.1f} ({kind})" for kind, nats in found.image_effect.items()
    )


def as_data(explanation: WordMaps, **facts: Any) -> dict[str, Any]:
    """The same as plain data for JSON."""
    grounds = explanation.provenance.get("grounding") or {}
    return {
        **facts,
        "answer": explanation.text,
        "given": explanation.provenance.get("answer") == "given",
        "lowest": lowest(explanation),
        "words": [_word(word) for word in content_words(explanation)],
        "model": explanation.provenance.get("model"),
        "calibration": grounds.get("calibration"),
    }


def _word(word: Word) -> dict[str, Any]:
    found, spot = word.grounding, word.spot
    assert found is not None
    data = {key: value for key, value in found.to_dict().items() if key not in ("content", "parts")}
    data["moves"] = found.moves
    place = None if spot is None else {"name": spot.name, "box": list(spot.box), "picture": spot.picture}
    if place is not None and spot is not None and spot.seconds is not None:
        place["seconds"] = spot.seconds
    return {"text": word.text, "index": word.index, **data, "where": place}


def counts(explanations: Sequence[WordMaps]) -> dict[str, int]:
    """How many words of some answers have each verdict."""
    found = dict.fromkeys(_STYLES, 0)
    for explanation in explanations:
        for word in content_words(explanation):
            if word.grounding is not None:
                found[word.grounding.verdict] += 1
    return found
