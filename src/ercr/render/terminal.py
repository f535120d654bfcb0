"""An explanation as coloured text: words on a background that shows their evidence, and a map in half blocks."""

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
    """The answer, each word on the colour of its strongest evidence."""
    line = Text()
    for word in explanation.words:
        separator = " " if len(line) and word.tokens[0].text[:1].isspace() else ""
        line.append(separator)
        line.append(printable(word.text), style=word_style(word.evidence))
    return line


def word_style(evidence: float) -> Style:
    (red, green, blue), dark = tint(evidence)
    return Style(color="white" if dark else "black", bgcolor=f"rgb({red},{green},{blue})")


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
        facts = f"  evidence {word.evidence:.2f}  p {word.probability:.2f}"
        console.print(Text.assemble("\n", (printable(word.text), "bold"), facts))
        console.print(map_lines(word.map))
    return buffer.getvalue().rstrip("\n")
