"""HTML for the page: the answer while it is generated, a strip of maps, and the finished report in a frame.

Texts come from users and models, so every one is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape

import numpy as np
from PIL import Image

from ercr.image.clips import LoadedClip
from ercr.image.gallery import Shown
from ercr.image.geometry import Floats
from ercr.image.images import LoadedImage
from ercr.image.pieces import AnyGeometry, pieces_of, split
from ercr.render.shown import names
from ercr.web.pictures import data_url, draw_map, shrink_to_side
from ercr.web.task_runner import PartialAnswer

_THUMBNAIL = 224  # pixels of the longer side; shown at half of that
_BRIGHT = 0.6  # share from which black letters stand out more on a tint than white ones


class AnswerView:
    """The answer and its maps so far, as two pieces of HTML; the second only grows at its end."""

    def __init__(self, shown: Image.Image | Shown) -> None:
        alone = [[shown]] if isinstance(shown, Image.Image) else [_frames(item) for item in shown.items]
        # few frames of a clip are looked at, so they are made small when they are needed
        self._small = cache(lambda piece, frame: shrink_to_side(alone[piece][frame], _THUMBNAIL))
        self._names = [""] if isinstance(shown, Image.Image) or len(shown.items) == 1 else names(shown)
        self._strip = ""
        self._drawn = 0

    def update(self, partial: PartialAnswer) -> tuple[str, str]:
        """The words, coloured by their strength, and the maps of the complete words."""
        words = partial.words()
        whole = len(words) if partial.complete else len(words) - 1
        for text, map_ in words[self._drawn : whole]:
            if any(letter.isalnum() for letter in text):
                self._strip += self._word_map(text, partial.geometry, map_)
            self._drawn += 1
        spans = "".join(_span(text, float(map_.max(initial=0.0)), i == 0) for i, (text, map_) in enumerate(words))
        caret = "" if partial.complete else '<span class="caret"></span>'
        return f'<p class="said">{spans}{caret}</p>', self._strip

    def _word_map(self, text: str, geometry: AnyGeometry, map_: Floats) -> str:
        """The picture with most evidence for a word, or the moment of a clip."""
        parts, pieces = split(geometry, map_), pieces_of(geometry)
        at = int(np.argmax([part.max(initial=0.0) for part in parts]))
        piece, grids = pieces[at], parts[at].reshape(-1, *pieces[at].geometry.grid)
        best = int(grids.max((1, 2)).argmax())
        small = self._small(at, piece.first_frames[best] if piece.clip else 0)
        return _word_map(text, data_url(draw_map(small, piece.geometry, grids[best])), self._names[at])


def _frames(item: LoadedImage | LoadedClip) -> list[Image.Image]:
    return [item.rgb] if isinstance(item, LoadedImage) else list(item.frames)


def _span(text: str, strength: float, first: bool) -> str:
    space, share = text[: len(text) - len(text.lstrip())], min(1.0, max(0.0, strength))
    # in dark mode strong words have a bright background and need dark letters
    hot = " hot" if share > _BRIGHT else ""
    # directly after another word its background must not cover the last letter
    tight = "" if first or space else " tight"
    word = f'<span class="word{hot}{tight}" style="--share:{share:.3f}">{escape(text.strip())}</span>'
    return space + word if text.strip() else space


def _word_map(text: str, url: str, name: str = "") -> str:
    """A map with its word and, of several pictures, which one it is."""
    word, where = escape(text.strip()), f", {name.lower()}" if name else ""
    return f'<figure><img src="{url}" alt="Evidence for {word}{where}"><figcaption>{word}{where}</figcaption></figure>'


def note(text: str, kind: str = "") -> str:
    """One sentence in place of the answer; `kind` is "empty" before the first request and "trouble" for an error."""
    return f'<p class="note {kind}" role="status">{escape(text)}</p>'


def result_links(key: str, files: Sequence[tuple[str, str]], summary: str) -> str:
    """A summary and download links, given as (label, file name)."""
    links = "".join(
        f'<a href="results/{key}/{escape(name)}" download="{escape(name)}">{escape(label)}</a>' for label, name in files
    )
    tab = f'<a href="results/{key}/report.html" target="_blank" rel="noopener">Open in a tab</a>'
    return f'<div class="kept"><span role="status">{escape(summary)}</span>{links}{tab}</div>'


def report_frame(key: str) -> str:
    """The report in a sandboxed frame, so that nothing in it can reach this page."""
    return (
        '<iframe title="Image evidence for each word" sandbox="allow-scripts allow-downloads" '
        f'src="results/{key}/framed.html"></iframe>'
    )
