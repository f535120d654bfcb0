"""`Explanation`: words and maps with methods to show and save them; never runs a model."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from ercr.explanation.export import as_arrays, as_json, save, write_animation
from ercr.render import in_notebook
from ercr.render.compare import Page, compare
from ercr.render.html import frame
from ercr.render.overlay import overlay_contrast, overlay_word
from ercr.render.terminal import render
from ercr.words import Which, WordMaps


@dataclass(eq=False, repr=False)
class Explanation(WordMaps):
    """Maps of the image evidence for every word of a prompt and its answer, with methods to show and save them."""

    # showing

    def overlay(
        self,
        which: Which = None,
        *,
        picture: int | None = None,
        time: float | None = None,
        opacity: float = 0.7,
        colormap: str = "inferno",
        grey: bool | None = None,
    ) -> Image.Image:
        """The image with a word's evidence laid over it; parts that the model was not shown are hatched.

        A word that is weak beside the answer's others stays faint. The image is grey beneath the map if `grey` is set,
        by default where its warm colours would drown the heat. Several pictures and clips stand side by side, unless
        `picture` names one; a clip is shown at a `time` in seconds, by default the word's strongest moment.
        """
        return overlay_word(self, which, opacity, colormap, grey, picture, time)

    def overlay_contrast(
        self,
        which: str | int,
        other: str,
        *,
        occurrence: int = 0,
        opacity: float = 0.7,
        colormap: str = "inferno",
        grey: bool | None = None,
    ) -> Image.Image:
        """Why this word and not another one: warm where the evidence for the word is stronger, blue for the other."""
        return overlay_contrast(self, self.contrast(which, other, occurrence), opacity, colormap, grey)

    def animate(self, path: str | os.PathLike[str], which: Which = None) -> None:
        """Write a GIF, WebM or MP4 (these two need the extra `video`), as the file's ending says.

        A clip plays with the evidence for a word, by default the strongest that names something. Pictures stand still,
        and the words of the answer appear with their evidence; the last frame is the word's, or that of the answer.
        """
        write_animation(self, Path(path), which)

    def show(self, which: Which = None) -> Page | None:
        """In a notebook the page, opened at a word; elsewhere the coloured words in the terminal."""
        if in_notebook():
            return compare([self], which)
        print(self.to_ansi(which))
        return None

    def to_ansi(self, which: Which = None, width: int | None = None) -> str:
        """Words coloured by their evidence and, for one word, its map in block characters."""
        return render(self, None if which is None else self.find(which), width)

    def to_html(self, path: str | os.PathLike[str] | None = None, which: Which = None) -> str:
        """A self-contained page, opened at a word if one is named; also written to `path` where one is given."""
        return compare([self], which).to_html(path)

    def _repr_html_(self) -> str:
        return frame(self)

    def __repr__(self) -> str:
        method = self.provenance.get("method", "?")
        grids = ", ".join("x".join(map(str, piece.shape)) for piece in self.pieces)
        return f"Explanation({self.text!r}, method={method!r}, grid{'s' if len(self.pieces) > 1 else ''}={grids})"

    # saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file with the arrays, the image and a JSON header; `ercr.load` reads it."""
        save(self, Path(path))

    def to_numpy(self) -> dict[str, NDArray[Any]]:
        """All maps as arrays: `words` and `maps` [words, h, w], `tokens` and `token_maps`, stages, context weights,
        and the `box` of the image, in pixels, that the maps cover. `ercr explain --out x.npz` writes the same.
        """
        return as_arrays(self)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data for JSON: text, words, maps on the token grid, provenance."""
        return as_json(self)
