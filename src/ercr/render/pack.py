"""Explanations as the plain data that a page's script draws from; no HTML here.

Explanations of one image with the same words share a group: one text, one panel per explanation. A panel's maps are
bytes, 255 at each map's own peak, for every step, then every word of the prompt and the answer, then every cell, then
the words that could have been said; all in one deflated block. Peaks are shares of what the answer's strongest word
reaches. Rows of tokens, words and maps are counted as in the explanation: the prompt's first.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ercr.image.geometry import Floats
from ercr.render.colormaps import cold, names, table
from ercr.render.grids import coarsened, places
from ercr.render.labels import labels
from ercr.render.shown import are_several, shown, turns
from ercr.render.stages import stages

if TYPE_CHECKING:
    from ercr.words import Grounding, Token, Word, WordMaps

_MAP_BYTES = 5_000_000  # of all maps in a page; above it maps are coarsened, so that the page opens fast
_HEAVIEST, _LIGHTEST = 12, 4  # tokens listed of a word's context
_LEAST_MOVE = 0.2  # of the sum behind `seen`, from which a page says what moved it


def pack(explanations: Sequence[WordMaps], word: Word | None = None) -> dict[str, Any]:
    """Everything a page shows, opened at a word of the first explanation."""
    images: dict[str, dict[str, Any]] = {}
    groups: dict[Any, dict[str, Any]] = {}
    step = _coarsening(explanations)
    for explanation, label in zip(explanations, labels(explanations), strict=True):
        words = (*explanation.prompt_words, *explanation.words)
        spaces = [*_spaces(explanation.prompt_tokens, explanation.prompt_words)]
        spaces += _spaces(explanation.tokens, explanation.words)
        key = explanation.image.sha256()
        if key not in images:
            images[key] = shown(explanation)
        group = groups.setdefault(
            (key, len(explanation.prompt_words), tuple(w.text for w in words)),
            {
                "image": list(images).index(key),
                "given": explanation.provenance.get("answer") == "given",
                "prompts": len(explanation.prompt_words),
                "words": [[space, w.text] for space, w in zip(spaces, words, strict=True)],
                "tables": [],
                "panels": [],
                "open": None if groups else _range(words, word),
                "turns": turns(explanation, explanation.prompt_words),
                "grounding": None,
            },
        )
        group["grounding"] = group["grounding"] or _grounding(explanation, words)
        tokens = _token_table(explanation, words)
        if tokens not in group["tables"]:
            group["tables"].append(tokens)
        panel = _panel(explanation, words, step)
        group["panels"].append({"label": label, "table": group["tables"].index(tokens), **panel})
    return {
        "colormaps": {name: _encode(table(name)) for name in names()},
        "cold": _encode(cold()),
        "images": list(images.values()),
        "groups": list(groups.values()),
    }


def _grounding(explanation: WordMaps, words: Sequence[Word]) -> dict[str, Any] | None:
    """Whether each word was seen or guessed, and from what; None where nobody measured it. Methods do not change it."""
    if explanation.signals is None:
        return None
    calibration = explanation.signals.calibration
    listed = [None if word.grounding is None else _word_grounding(word.grounding) for word in words]
    return {"calibration": calibration.name, "below": calibration.below, "above": calibration.above, "words": listed}


def _word_grounding(found: Grounding) -> dict[str, Any]:
    return {
        "seen": _number(found.seen),
        "verdict": found.verdict,
        "content": found.content,
        "effect": {kind: _number(value) for kind, value in found.image_effect.items()},
        "rank": found.lens_rank,
        "lens": None if found.lens_probability is None else _number(found.lens_probability),
        "focus": None if found.focus is None else _number(found.focus),
        "moves": [[about, _number(value)] for about, value in found.moves.items() if abs(value) >= _LEAST_MOVE],
    }


def _spaces(tokens: Sequence[Token], words: Sequence[Word]) -> list[str]:
    """The white space before each word; a turn of the chat starts a new line."""
    first = {word.tokens[0].row: index for index, word in enumerate(words)}
    last = {word.tokens[-1].row for word in words}
    spaces, open_, before = [""] * len(words), "", None
    for token in tokens:
        if before is not None and token.position != before + 1:
            open_ += "\n"
        before = token.position
        text = token.text
        if token.row in first:
            spaces[first[token.row]] = _short(open_ + text[: len(text) - len(text.lstrip())])
            open_ = ""
        if token.row in last:
            open_ += text[len(text.rstrip()) :] if text.strip() else ""
        elif not text.strip() and token.row not in first:
            open_ += text
    if spaces:
        spaces[0] = ""
    return spaces


def _short(space: str) -> str:
    """At most one empty line or one blank."""
    lines = space.count("\n")
    return "\n" * min(lines, 2) if lines else " " * bool(space)


def _range(words: Sequence[Word], word: Word | None) -> list[int] | None:
    """First and last-plus-one index of the words that a word or phrase is made of."""
    wanted = {token.row for token in word.tokens} if word is not None else set()
    at = [index for index, w in enumerate(words) if wanted & {token.row for token in w.tokens}]
    return [at[0], at[-1] + 1] if at else None


def _token_table(explanation: WordMaps, words: Sequence[Word]) -> dict[str, Any]:
    """Tokens with their probabilities and candidates, and which of them make up each word."""
    tokens = [
        [t.text, _number(t.probability), [[c.text, _number(c.probability)] for c in t.candidates]]
        for t in explanation.text_tokens
    ]
    return {"tokens": tokens, "rows": [[token.row for token in word.tokens] for word in words]}


def _panel(explanation: WordMaps, words: tuple[Word, ...], step: int) -> dict[str, Any]:
    steps = stages(explanation, words)
    geometry = explanation.geometry
    levels, peaks = zip(*(_levels(coarsened(geometry, s.maps, step)) for s in steps), strict=True)
    instead, others = _instead(explanation, words, step)
    provenance = explanation.provenance
    return {
        "method": provenance.get("method"),
        "model": provenance.get("model"),
        "settings": {key: value for key, value in (provenance.get("settings") or {}).items() if value is not None},
        "versions": provenance.get("versions") or {},
        **places(explanation, step),
        **(
            {"where": [[_number(v) for v in chain(*word.shares)] for word in words]} if are_several(explanation) else {}
        ),
        "stages": [{"key": s.key, "label": s.label, "about": s.about} for s in steps],
        "shares": [[_number(float(m.max(initial=0.0))) for m in s.maps] for s in steps],
        "peaks": [[_number(float(p)) for p in peak] for peak in peaks],
        "strength": [_number(word.strength) for word in words],
        "unit": provenance.get("unit") or "",
        "instead": instead,
        "maps": _encode(np.frombuffer(zlib.compress(np.concatenate([*levels, others]).tobytes(), 6), np.uint8)),
        "context": _context(explanation, words),
    }


def _instead(
    explanation: WordMaps, words: Sequence[Word], step: int
) -> tuple[list[list[list[Any]]] | None, NDArray[np.uint8]]:
    """For each word what could stand in its place, as [text, strength, share, peak], and the maps of all these.

    The first is the first token that was said, so that the others can be compared with it.
    """
    found = explanation.alternatives
    answered = [word.tokens[0] for word in words if word.tokens[0].kind == "answer"]
    if found is None or not answered:
        return None, _levels(coarsened(explanation.geometry, explanation.maps[:0], step))[0]
    rows = [token.row for token in answered]
    at = [row - found.first for row in rows]
    maps = found.maps[at]  # [W, C, h, w]
    heights, strength = maps.max((2, 3), initial=0.0), found.strength[at]
    factors = np.where(heights > 0, strength / np.where(heights > 0, heights, 1.0), 0.0) / explanation.strongest
    lit = np.concatenate([explanation.evened[rows][:, None], maps * factors[..., None, None]], axis=1)
    flat = np.asarray(lit.reshape(-1, *lit.shape[2:]), np.float32)
    levels, peaks = _levels(coarsened(explanation.geometry, flat, step))
    strength = np.concatenate([explanation.strengths[rows][:, None], strength], axis=1)
    entries = [
        [
            [text, _number(value), _number(value / explanation.strongest), _number(peak)]
            for text, value, peak in zip((token.text, *found.texts[row]), values, own, strict=True)
        ]
        for token, row, values, own in zip(answered, at, strength, peaks.reshape(strength.shape), strict=True)
    ]
    return [[] for _ in range(len(words) - len(entries))] + entries, levels


def _context(explanation: WordMaps, words: Sequence[Word]) -> list[Any] | None:
    """For each word's first token: beta, how many tokens were subtracted, and [row, alpha, relevance] of some."""
    alpha, beta = explanation.alpha, explanation.beta
    if alpha is None or beta is None:
        return None
    entries = []
    for word in words:
        row = word.tokens[0].row
        order = np.argsort(-alpha[row], kind="stable")
        order = order[alpha[row, order] > 0]
        listed = [*order[:_HEAVIEST], *order[_HEAVIEST:][-_LIGHTEST:]]
        relevance = None if explanation.relevance is None else explanation.relevance[row]
        some = [[int(j), _number(alpha[row, j]), None if relevance is None else _number(relevance[j])] for j in listed]
        entries.append([_number(beta[row]), len(order), some])
    return entries


def _coarsening(explanations: Sequence[WordMaps]) -> int:
    """How many cells along each side are stored as one: 1 unless the page would grow too large."""
    size = 0
    for explanation in explanations:
        words, steps = len(explanation.words) + len(explanation.prompt_words), 1 if explanation.alpha is None else 3
        rows, columns = explanation.geometry.grid
        instead = explanation.alternatives
        others = 0 if instead is None else (1 + instead.ids.shape[1]) * len(explanation.words)
        size += (words * steps + others) * rows * columns
    return max(1, int(np.ceil(np.sqrt(size / _MAP_BYTES))))


def _levels(maps: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """Maps [W, h, w] as bytes with 255 at each map's peak, and the peaks."""
    peaks = maps.max((1, 2), initial=0.0)
    scale = np.where(peaks > 0, peaks, 1.0)[:, None, None]
    return np.clip(maps / scale * 255 + 0.5, 0, 255).astype(np.uint8), peaks


def _number(value: float) -> float:
    """Rounded to four digits, which is more than a page shows."""
    return float(f"{float(value):.4g}")


def _encode(values: NDArray[np.uint8]) -> str:
    return base64.b64encode(values.tobytes()).decode()
