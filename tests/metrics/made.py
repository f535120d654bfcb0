"""Explanations and a language made by hand, so that scores are tested and neither a model nor a tagger."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ercr.explanation import Explanation, Token
from ercr.image.geometry import Geometry, Panel
from ercr.image.images import LoadedImage
from ercr.metrics.language import Language
from ercr.metrics.pooled import Pooled

END = "<|end|>"
CATEGORIES = {1: "person", 18: "dog", 41: "skateboard", 58: "hot dog", 62: "chair", 88: "teddy bear"}
# as lists of descriptions have them: names share ids, and one stands for the background
SHARED = [(18, "dog"), (58, "chair"), (1, "person"), (18, "man"), (0, "blue sky"), (58, "hot dog"), (1, "dog house")]
NOUNS = {"dog", "dogs", "bear", "person", "man", "chair", "chairs", "umbrellas", "sky", "doggy", "狗"}
FUNCTIONS = {"a", "the", "and", "there", "themselves"}


def tag(word: str) -> str:
    if END in word:
        return "NNP"  # taggers take what they do not know for a name
    return "NN" if word.lower() in NOUNS else "DT" if word.lower() in FUNCTIONS else "JJ"


LANGUAGE = Language("stand-in", tag, lambda word: {"chairs": "chair"}.get(word, word.removesuffix("s")))


def explanation(texts, maps, size=(60, 90), box=None, prompt=("Describe",)) -> Explanation:
    """An answer of these tokens with maps [tokens, h, w]; the prompt's rows come first and hold noise."""
    maps = np.asarray(maps, np.float32)
    spoken = [*prompt, *texts]
    tokens = tuple(
        Token(text, 100 + i, i, 50 + i, "prompt" if i < len(prompt) else "answer", text == END, 0.5 + 0.01 * i, ())
        for i, text in enumerate(spoken)
    )
    noise = np.random.default_rng(9).random((len(prompt), *maps.shape[1:]), np.float32)
    geometry = Geometry(size, (Panel(maps.shape[1:], box or (0.0, 0.0, float(size[1]), float(size[0]))),))
    image = LoadedImage(Image.new("RGB", size[::-1]))
    return Explanation(image, geometry, tokens, np.concatenate([noise, maps]), {"method": "made"})


def blobs(rng, count, grid=(6, 9)) -> np.ndarray:
    """Smooth maps, each with one bright place; a few are empty or flat."""
    y, x = np.mgrid[0 : grid[0], 0 : grid[1]]
    at = rng.random((count, 2, 1, 1)) * np.array(grid)[:, None, None]
    maps = np.exp(-((y - at[:, 0]) ** 2 + (x - at[:, 1]) ** 2) / rng.uniform(1, 12, (count, 1, 1)))
    maps *= rng.uniform(0.3, 1, (count, 1, 1))
    maps[rng.random(count) < 0.05] = 0
    maps[rng.random(count) < 0.05] = 0.4
    return maps


def sums(scored):
    """Sum and count of each figure of an answer's words, for `Pooled.add`."""
    objects = [word.pooled for word in scored.words if word.pooled is not None]
    quiet = [word.quiet for word in scored.words if word.quiet is not None]
    return {
        "obj_iou": (sum(o.iou for o in objects), len(objects)),
        "func_iou": (sum(quiet), len(quiet)),
        "precision": (sum(o.precision for o in objects), len(objects)),
        "recall": (sum(o.recall for o in objects), len(objects)),
    }


def pool(rows, budgets=()):
    """The scores of these rows of one method, as a run pools them; without those of words where none is scored."""
    scores, schema = (pytest.importorskip(f"ercr.evaluate.{name}") for name in ("scores", "schema"))
    table = schema.pa.Table.from_pylist([{"method": "made", "status": "ok", **row} for row in rows], schema.SCHEMA)
    found = scores.pool(table, budgets)["made"]
    kept = {image: {name: pair for name, pair in row.items() if pair[1]} for image, row in found.images.items()}
    return Pooled(kept)
