"""HTML that the page shows: the answer as it is spoken, a strip of maps, and the finished report in its frame.

Every text in here was written by a user or a model and is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from PIL import Image

from ercr.web.pictures import data_url, fitted, lit
from ercr.web.spoken import Speech

_THUMBNAIL = 224  # pixels of the longer side; shown at half of that
_BRIGHT = 0.6  # evidence from which black letters stand out more on a tint than white ones


class Live:
    """The answer and its maps so far, as two pieces of HTML of which the second only ever grows at its end."""

    def __init__(self, image: Image.Image) -> None:
        self._shown = fitted(image, _THUMBNAIL)
        self._strip = ""
        self._drawn = 0

    def update(self, speech: Speech) -> tuple[str, str]:
        """The spoken words on the colours of their evidence, and the maps of the words that are complete."""
        words = speech.words()
        whole = len(words) if speech.complete else len(words) - 1
        for text, evidence in words[self._drawn : whole]:
            if any(letter.isalnum() for letter in text):
                self._strip += _figure(text, data_url(lit(self._shown, speech.geometry, evidence)))
            self._drawn += 1
        spans = "".join(
            _span(text, float(evidence.max(initial=0.0)), i == 0) for i, (text, evidence) in enumerate(words)
        )
        caret = "" if speech.complete else '<span class="caret"></span>'
        return f'<p class="said">{spans}{caret}</p>', self._strip


def _span(text: str, evidence: float, first: bool) -> str:
    space, share = text[: len(text) - len(text.lstrip())], min(1.0, max(0.0, evidence))
    # on dark paper strong words are bright, and need dark letters
    hot = " hot" if share > _BRIGHT else ""
    # right behind another word it must not paint over the last letter
    tight = "" if first or space else " tight"
    word = f'<span class="word{hot}{tight}" style="--share:{share:.3f}">{escape(text.strip())}</span>'
    return space + word if text.strip() else space


def _figure(text: str, url: str) -> str:
    word = escape(text.strip())
    return f'<figure><img src="{url}" alt="Evidence for {word}"><figcaption>{word}</figcaption></figure>'


def note(text: str, kind: str = "") -> str:
    """One sentence where the answer will be; `kind` is "empty" before anything was asked, "trouble" after a mistake."""
    return f'<p class="note {kind}" role="status">{escape(text)}</p>'


def kept(key: str, files: Sequence[tuple[str, str]], summary: str) -> str:
    """What was done, and links to what can be kept: (label, file name)."""
    links = "".join(
        f'<a href="results/{key}/{escape(name)}" download="{escape(name)}">{escape(label)}</a>' for label, name in files
    )
    tab = f'<a href="results/{key}/report.html" target="_blank" rel="noopener">Open in a tab</a>'
    return f'<div class="kept"><span role="status">{escape(summary)}</span>{links}{tab}</div>'


def framed(key: str) -> str:
    """The report in a frame of an origin of its own, so that nothing in it can reach this page."""
    return (
        '<iframe title="Image evidence for each word" sandbox="allow-scripts allow-downloads" '
        f'src="results/{key}/framed.html"></iframe>'
    )
