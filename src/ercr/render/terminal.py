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
from ercr.printable import printable
from ercr.render.colormaps import colour, tint

if TYPE_CHECKING:
    from ercr.words import Word, WordMaps

_COLORMAP = "inferno"
_MAX_COLUMNS = 64


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
    return f"{found}, probability {word.probability:.2f}"


def unit(explanation: WordMaps) -> str:
    """What strengths are measured in."""
    return str(explanation.provenance.get("unit") or "of evidence")


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
        console.print(map_lines(word.lit))
    return buffer.getvalue().rstrip("\n")
