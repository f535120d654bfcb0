"""Explanations side by side, and what a notebook shows of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ercr.errors import InputError
from ercr.words import Which, Word, WordMaps


@dataclass(frozen=True, eq=False)
class Page:
    """One or several explanations as one page, opened at a word. A notebook shows it; `to_html` writes it."""

    explanations: tuple[WordMaps, ...]
    word: Word | None = None

    def to_html(self, path: str | os.PathLike[str] | None = None, which: Which = None) -> str:
        """A self-contained page, opened at a word of the first explanation; also written where a path is given."""
        from ercr.files.writing import write_atomic
        from ercr.render.html import page

        document = page(self.explanations, self.word if which is None else self.explanations[0].find(which))
        if path is not None:
            write_atomic(Path(path), document.encode())
        return document

    def _repr_html_(self) -> str:
        from ercr.render.html import frame

        return frame(self.explanations, self.word)

    def __repr__(self) -> str:
        from ercr.render.labels import labels

        return f"Page({', '.join(labels(self.explanations))}: {self.explanations[0].text!r})"


def compare(explanations: Sequence[WordMaps], which: Which = None) -> Page:
    """Several explanations side by side, such as those of `Explainer.explain_all`, opened at a word.

    Those with the same image and words share one text; others follow below it.
    """
    if isinstance(explanations, WordMaps):
        explanations = (explanations,)
    shown = tuple(explanations)
    if not shown or not all(isinstance(item, WordMaps) for item in shown):
        raise InputError("Give a list of explanations to compare, such as explainer.explain_all(...) returns.")
    return Page(shown, None if which is None else shown[0].find(which))
