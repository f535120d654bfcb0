"""The demonstration: a drawn scene, the packaged model's caption, and the evidence for every word."""

from __future__ import annotations

import io
from pathlib import Path

from ercr.explainer import Explainer
from ercr.explanation import Explanation
from ercr.storage import write_atomic

PROMPT = "Write a one-sentence caption for this image:"


def run(explainer: Explainer, folder: Path, seed: int) -> tuple[Explanation, list[Path]]:
    """Explain one scene and write it as picture, page and saved explanation."""
    from ercr.datasets.scenes import scene
    from ercr.render.strip import strip

    drawn = scene(seed)
    explanation = explainer.explain(drawn.image, PROMPT, max_new_tokens=64)
    nouns = {noun for item in drawn.objects for noun in item.name.split()}
    words = [word for word in explanation.words if word.text.lower().rstrip("s") in {n.rstrip("s") for n in nouns}]
    files = [folder / "evidence.png", folder / "report.html", folder / "explanation.ercr"]
    buffer = io.BytesIO()
    strip(explanation, words or list(explanation.words[:4])).save(buffer, format="PNG")
    write_atomic(files[0], buffer.getvalue())
    explanation.to_html(files[1])
    explanation.save(files[2])
    return explanation, files
