"""An explanation as coloured text: words on a background that shows how strong they are, and a map in half blocks.

Words are coloured by `Word.tint`: as they were seen, or else by their strength beside the answer's other words. Words
that were guessed are underlined.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.style import Style
from rich.text import Text

from ercr.image.geometry import Floats
from ercr.image.pieces import Pieces, split
from ercr.printable import printable
from ercr.render.colormaps import colour, tint

if TYPE_CHECKING:
    from ercr.words import Place, Word, WordMaps

_COLORMAP = "inferno"
_MAX_COLUMNS = 64
_MOST_PLACES, _LEAST_SHARE = 3, 0.05  # pictures and parts of clips whose maps are shown of a word


def words_line(explanation: WordMaps) -> Text:
    """The answer, each word on the colour of its tint; guessed words are underlined."""
    line = Text()
    for word in explanation.words:
        separator = " " if len(line) and word.tokens[0].text[:1].isspace() else ""
        line.append(separator)
        line.append(printable(word.text), style=word_style(word))
    return line


def word_style(word: Word) -> Style:
    (red, green, blue), dark = tint(word.tint)
    return Style(color="white" if dark else "black", bgcolor=f"rgb({red},{green},{blue})", underline=is_guess(word))


def is_guess(word: Word) -> bool:
    """Whether a word that could name something was guessed."""
    return word.grounding is not None and word.grounding.content and word.grounding.verdict == "guessed"


def facts(word: Word, unit: str) -> str:
    """A word's numbers in one line."""
    found = f"strength {word.strength:.2f} {unit} ({100 * word.share:.0f} % of the answer's strongest)"
    if word.grounding is not None:
        found = f"{word.grounding.verdict} {word.grounding.seen:.2f}, {found}"
    places = "".join(f", {_percent(place, word)}" for place in _strongest(word)[:1])
    return f"{found}, probability {word.probability:.2f}{places}"


def unit(explanation: WordMaps) -> str:
    """What strengths are measured in."""
    return str(explanation.provenance.get("unit") or "of evidence")


def word_lines(word: Word) -> Text:
    """A word's map; of several pictures, or a clip, those of the places with most of its evidence."""
    if not isinstance(word.geometry, Pieces):
        return map_lines(word.lit)
    text, parts = Text(), split(word.geometry, word.lit)
    for place in _strongest(word):
        piece = word.geometry.pieces[place.picture]
        at = 0 if place.start is None else [start for start, _ in piece.spans].index(place.start)
        text.append(f"{_percent(place, word)}\n", style="dim")
        text.append_text(map_lines(parts[place.picture].reshape(piece.slices, *piece.geometry.grid)[at]))
    return text


def _strongest(word: Word) -> list[Place]:
    """The pictures and parts of clips that hold a word's evidence; nothing where there is only one picture."""
    if not isinstance(word.geometry, Pieces):
        return []
    return [place for place in word.where() if place.share >= _LEAST_SHARE][:_MOST_PLACES]


def _percent(place: Place, word: Word) -> str:
    """`80 % in picture 2`, or where in time of a clip."""
    parts = [f"picture {place.picture + 1}"] if len(word.maps) > 1 else []
    parts += [] if place.start is None else [f"{place.start:.1f} to {place.stop:.1f} s"]
    return f"{100 * place.share:.0f} % in {', '.join(parts)}"


def map_lines(map_: Floats) -> Text:
    """A map on the token grid: two rows of cells per line of text, a half block in two colours; wide maps thinned."""
    step = -(-map_.shape[1] // _MAX_COLUMNS)
    cells = map_[::step, ::step]
    if len(cells) % 2:
        cells = np.vstack([cells, np.zeros_like(cells[:1])])
    colours = colour(cells, _COLORMAP)
    text = Text()
    for upper, lower in zip(colours[::2], colours[1::2], strict=True):
        for top, bottom in zip(upper, lower, strict=True):
            style = Style(color="rgb({},{},{})".format(*top), bgcolor="rgb({},{},{})".format(*bottom))
            text.append("▀", style=style)
        text.append("\n")
    return text


def render(explanation: WordMaps, word: Word | None, width: int | None) -> str:
    """The coloured answer as a string with terminal codes; with a word, also that word's map."""
    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, color_system="truecolor", width=width or 100)
    console.print(words_line(explanation))
    if word is not None:
        numbers = facts(word, unit(explanation))
        console.print(Text.assemble("\n", (printable(word.text), "bold"), f"  {numbers}"))
        console.print(word_lines(word))
    return buffer.getvalue().rstrip("\n")
