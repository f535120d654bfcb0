"""Explanations made by hand, without a model: known maps, contexts that add up, any text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from PIL import Image

from ercr.explanation import Candidate, Explanation, Token
from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.image.gallery import Gallery
from ercr.image.geometry import STRAIGHT, Box, Geometry, Lean, Panel, Spans
from ercr.image.images import LoadedImage
from ercr.image.pieces import Piece, Pieces
from ercr.words.calibration import Calibration, Part
from ercr.words.contrast import Alternatives
from ercr.words.grounding import Signals

PROMPT = ("Describe", " this", " image", ".")
ANSWER = ("A", " red", " kang", "aroo", " beside", " a", " small", " dog", ",", " and", " a", " house", ".")


def photo(size: tuple[int, int] = (90, 130), seed: int = 3) -> Image.Image:
    """Blobs of colour on noise; size is height and width."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : size[0], 0 : size[1]]
    base = np.stack([128 + 80 * np.sin(x / 9), 128 + 80 * np.cos(y / 7), (x + y) % 255], -1)
    return Image.fromarray(np.clip(base + rng.normal(0, 12, base.shape), 0, 255).astype(np.uint8))


def with_seams(*lines: tuple[int, int]) -> Spans:
    """Cells of lines (their number, and the picture's side) in tiles of three, with a gap behind every tile."""
    found = []
    for count, side in lines:
        pitch = Fraction(side, 11 * count)
        starts = [(10 * i + 3 * (i // 3)) * pitch for i in range(count)]
        found.append(tuple((start, start + 10 * pitch) for start in starts))
    return (found[0], found[1])


def explanation(
    answer: Sequence[str] = ANSWER,
    prompt: Sequence[str] = PROMPT,
    *,
    image: Image.Image | None = None,
    grid: tuple[int, int] = (6, 9),
    box: Box | None = None,
    lean: Lean = STRAIGHT,
    spans: Spans | None = None,
    method: str = "ercr",
    model: str = "made-by-hand",
    seed: int = 0,
    grounded: bool = False,
    others: int = 0,
) -> Explanation:
    """One blob of evidence per token at a place of its own; `ercr` and `tam` subtract the mean of earlier maps.

    With `grounded`, every second token was guessed; `others` is how many words could have been said instead of each.
    """
    picture = image or photo()
    rng = np.random.default_rng(seed)
    pieces = [*prompt, *answer, "</s>"]
    context = method in ("ercr", "tam")
    before = _blobs(rng, len(pieces), grid)
    alpha, beta, subtracted = _context(before)
    if spans is None:
        panel = Panel(grid, box or (0, 0, picture.width, picture.height), lean)
    else:
        panel = Panel.spaced(*spans, lean)
    geometry = Geometry((picture.height, picture.width), (panel,))
    loaded = LoadedImage(picture)
    return Explanation(
        image=loaded,
        geometry=geometry,
        text_tokens=tuple(_token(rng, row, text, len(prompt), len(pieces)) for row, text in enumerate(pieces)),
        maps=np.clip(before - subtracted, 0, 1).astype(np.float32) * geometry.valid if context else before,
        provenance={
            "model": model,
            "method": method,
            "settings": {"layer": -1},
            "answer": "generated",
            "versions": {"ercr": "0"},
            "image": {"sha256": loaded.sha256(), "size": list(loaded.size)},
        },
        stages={"evidence": before},
        alpha=alpha if context else None,
        beta=beta if context else None,
        relevance=rng.random(alpha.shape).astype(np.float32) if context else None,
        signals=_signals(len(prompt), len(answer) + 1) if grounded else None,
        alternatives=_others(rng, len(prompt), len(answer) + 1, others, grid) if others else None,
    )


def _signals(first: int, count: int) -> Signals:
    guessed = np.arange(count) % 2 == 1
    values = {
        "without.text": np.where(guessed, -1.0, -6.0).astype(np.float32),
        "lens.rank": np.where(guessed, 900, 2).astype(np.float32),
        "lens.probability": np.where(guessed, 0.001, 0.4).astype(np.float32),
        "focus": np.where(guessed, 0.1, 0.8).astype(np.float32),
    }
    parts = (Part("effect.text", 2.0, 1.0, 1.0), Part("lens.probability", 0.2, 0.1, 0.5))
    return Signals(first, values, Calibration("made by hand", parts, 0.0, 0.3, 0.6))


def _others(rng: np.random.Generator, first: int, count: int, others: int, grid: tuple[int, int]) -> Alternatives:
    maps = np.stack([_blobs(rng, others, grid) for _ in range(count)])
    ids = np.arange(count * others).reshape(count, others)
    texts = tuple(tuple(f" other{i}" for i in range(others)) for _ in range(count))
    return Alternatives(first, ids, texts, maps, maps.max((2, 3)))


def _blobs(rng: np.random.Generator, count: int, grid: tuple[int, int]) -> np.ndarray:
    y, x = np.mgrid[0 : grid[0], 0 : grid[1]]
    centre = rng.random((count, 2)) * grid
    width = 0.15 * min(grid)
    far = (y - centre[:, 0, None, None]) ** 2 + (x - centre[:, 1, None, None]) ** 2
    strength = rng.uniform(0.15, 1.0, (count, 1, 1))
    noise = rng.random((count, *grid)) * 0.05
    return np.clip(strength * np.exp(-far / (2 * width**2)) + noise, 0, 1).astype(np.float32)


def _context(before: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = len(before)
    alpha = np.tril(np.ones((count, count), np.float32), -1)
    alpha[:, -1] = 0
    alpha /= np.maximum(alpha.sum(1, keepdims=True), 1)
    flat = before.reshape(count, -1)
    context = alpha @ flat
    beta = ((flat * context).sum(1) / ((context**2).sum(1) + 1e-8)).astype(np.float32)
    return alpha, beta, (beta[:, None] * context).reshape(before.shape)


def _token(rng: np.random.Generator, row: int, text: str, prompts: int, count: int) -> Token:
    probability = float(rng.uniform(0.2, 1))
    others = tuple(Candidate(f" other{i}", 100 + i, (1 - probability) / (i + 2)) for i in range(4))
    return Token(
        text=text,
        id=row,
        row=row,
        position=row,
        kind="prompt" if row < prompts else "answer",
        special=row == count - 1,
        probability=probability,
        candidates=(Candidate(text, row, probability), *others),
    )


def pieces(
    *kinds: str,
    answer: Sequence[str] = ANSWER,
    prompt: Sequence[str] = PROMPT,
    method: str = "cam",
    seed: int = 0,
    frames: int = 6,
    size: tuple[int, int] = (96, 128),
    grid: tuple[int, int] = (4, 6),
    conversation: Sequence[dict] = (),
) -> Explanation:
    """Words about pictures and clips; a slice shows two frames. Most evidence for a word is in one place."""
    items = [
        LoadedImage(_smooth(size, 10 + at)) if kind == "picture" else made_clip(frames, size, 40 + at)
        for at, kind in enumerate(kinds)
    ]
    geometry = Geometry(size, (Panel(grid, (0, 0, size[1], size[0])),))
    pairs = [() if isinstance(i, LoadedImage) else zip(i.times[::2], i.times[1::2], strict=True) for i in items]
    shown = Pieces(tuple(Piece(geometry, tuple(times), frames / 2) for times in pairs))
    one = explanation(answer, prompt, grid=grid, method="cam", seed=seed)
    places = sum(piece.slices for piece in shown.pieces)
    maps = np.zeros((len(one.maps), places, grid[0] * grid[1]), np.float32)
    for row, map_ in enumerate(one.maps):
        maps[row, row % places] = map_.ravel()
        maps[row, (row + 1) % places] = 0.2 * map_.ravel()
    gallery = Gallery(tuple(items))
    provenance = {**one.provenance, "method": method, "image": _listed(gallery)}
    if conversation:
        provenance["conversation"] = list(conversation)
    return replace(
        one,
        image=gallery,
        geometry=shown,
        maps=maps.reshape(len(maps), 1, -1),
        stages={},
        provenance=provenance,
    )


def _listed(gallery: Gallery) -> dict:
    listed = [{"sha256": item.sha256(), "size": list(item.size)} for item in gallery.items]
    return {"sha256": gallery.sha256(), "pieces": listed}


def _smooth(size: tuple[int, int], seed: int) -> Image.Image:
    """Blobs that look the same at every size."""
    return photo((12, 16), seed).resize((size[1], size[0]), resample=Image.Resampling.BICUBIC)


def made_clip(frames: int, size: tuple[int, int], seed: int) -> LoadedClip:
    """Pictures that differ clearly, two in a second."""
    pictures = tuple(_smooth(size, seed + frame) for frame in range(frames))
    return LoadedClip(pictures, tuple(range(frames)), Facts(frames, 2.0, size))
