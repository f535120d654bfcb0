"""Measures the model for pairs and clips on seeds it was never trained on, by explaining its answers; trains nothing.

    python -m training.clips_measure --model DIR --sprites carry/sprites.npz --out docs/models/clips-figures.json

Styles take turns from seed to seed, first the trained ones, then the unseen one. Nouns are those of greedy answers.
Evidence is that of the method `ercr` with its default settings, the maximum over a noun's tokens; of pairs also that of
its first token alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import ercr
from ercr.datasets import moving, pairs
from ercr.datasets.scenes.captions import counts, mentions
from ercr.datasets.scenes.compose import MOST, compose, pack, visible
from ercr.datasets.scenes.dataset import finish
from ercr.datasets.scenes.nouns import BY_NAME
from ercr.datasets.scenes.pictograms import PICTOGRAMS
from ercr.explanation import Explanation
from ercr.metrics.several import PixelRow

from .measure import UNSEEN_STYLE
from .scenes import TRAINED_STYLES, load_sprites

_CHUNK = 16  # samples that are explained together


@dataclass
class Sums:
    """Sums over samples, and the figures they give."""

    samples: int = 0
    right: int = 0
    named: int = 0
    there: int = 0
    numbers: list[bool] = field(default_factory=list)  # whether `which` was answered with the right number
    picture: list[bool] = field(default_factory=list)  # per noun: most evidence in the right picture
    first: list[bool] = field(default_factory=list)  # the same of the noun's first token
    share: list[float] = field(default_factory=list)  # per noun: share of evidence in the right picture
    inside: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    slices: list[float] = field(default_factory=list)  # share of evidence in slices that show the thing
    frames: list[float] = field(default_factory=list)  # the same by frames
    exact: int = 0

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "samples": self.samples,
            "noun_precision": round(self.right / max(self.named, 1), 4),
            "noun_recall": round(self.right / max(self.there, 1), 4),
            "answers_as_written": round(self.exact / max(self.samples, 1), 4),
            "nouns_scored": len(self.inside),
            "density": round(float(np.mean(self.inside) / max(np.mean(self.outside), 1e-9)), 2),
        }
        lists = {
            "which_answered_right": self.numbers,
            "evidence_in_the_right_picture": self.picture,
            "first_token_in_the_right_picture": self.first,
            "share_in_the_right_picture": self.share,
            "share_where_visible_by_slices": self.slices,
            "share_where_visible_by_frames": self.frames,
        }
        return {**found, **{name: round(float(np.mean(values)), 4) for name, values in lists.items() if values}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--sprites", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=500, help="pairs and clips, in trained styles and again unseen")
    parser.add_argument("--method", default="ercr")
    args = parser.parse_args()
    explainer = ercr.Explainer.from_pretrained(str(args.model), dtype="float32")
    found: dict[str, Any] = {}
    for name, styles in (("trained_styles", TRAINED_STYLES), ("unseen_style", (UNSEEN_STYLE,))):
        bank = load_sprites(args.sprites, styles)
        for kind, measure in (("pairs", measure_pairs), ("clips", measure_clips)):
            began = time.monotonic()
            figures = measure(explainer, bank, len(styles), args.count, args.method)
            found.setdefault(kind, {})[name] = figures
            print(f"{kind}, {name} ({time.monotonic() - began:.0f} s): {json.dumps(figures)}", flush=True)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(found, indent=2) + "\n")


def measure_pairs(explainer: ercr.Explainer, bank: Tensor, styles: int, count: int, method: str) -> dict[str, Any]:
    sums, examples = Sums(), []
    for chunk in _chunks(drawn_pairs(bank, styles, count)):
        prompts = [pair.prompt for pair in chunk]
        shown = [[scene.image for scene in pair.scenes] for pair in chunk]
        for pair, found in zip(chunk, _explain(explainer, shown, prompts, method), strict=True):
            nouns = {thing.name for thing in pair.scenes[pair.asked].objects}
            wanted = set(counts(pair.answer))
            said = _count(sums, found.text, nouns if wanted == nouns else wanted, pair.answer)
            if wanted != nouns:  # which picture shows it
                sums.numbers.append(pairs.NUMBERS[pair.asked] in found.text)
            labels = [scene.labels for scene in pair.scenes]
            row = PixelRow.of(found, labels)
            for name in said & nouns:
                maps = _maps(found, name)
                map_, shares = maps.max(0), _shares(found, name)
                sums.picture.append(shares.sum() > 0 and int(np.argmax(shares)) == pair.asked)
                sums.first.append(int(np.argmax(_amounts(found, maps[0]))) == pair.asked and bool(maps[0].max() > 0))
                sums.share.append(float(shares[pair.asked]))
                _dense(sums, row, map_, row.labels(labels) == BY_NAME[name].category_id)
            examples.append({"seed": pair.seed, "asked": pair.prompt, "said": found.text, "true": pair.answer})
    return {**sums.figures(), "examples": examples[:6]}


def measure_clips(explainer: ercr.Explainer, bank: Tensor, styles: int, count: int, method: str) -> dict[str, Any]:
    sums, examples = Sums(), []
    for chunk in _chunks(drawn_clips(bank, styles, count)):
        prompts = [moving.PROMPT] * len(chunk)
        for clip, found in zip(chunk, _explain(explainer, [c.clip for c in chunk], prompts, method), strict=True):
            said = _count(sums, found.text, set(clip.nouns), clip.caption)
            row, piece = PixelRow.of(found, [clip.labels]), found.pieces[0]
            for name in said & set(clip.nouns):
                mask = clip.labels == BY_NAME[name].category_id
                shown = mask.any((1, 2))
                if not shown.any():
                    continue  # hidden behind another thing
                map_ = _maps(found, name).max(0)
                amounts = found.geometry.split(map_)[0].sum((1, 2))  # type: ignore[union-attr]
                total, of_frame = float(amounts.sum()), amounts[piece.slice_of_frame]
                borders = pairwise(piece.first_frames)
                slices = np.array([bool(shown[first:behind].any()) for first, behind in borders])
                sums.slices.append(float(amounts[slices].sum()) / total if total > 0 else 0.0)
                sums.frames.append(float(of_frame[shown].sum() / of_frame.sum()) if total > 0 else 0.0)
                _dense(sums, row, map_, mask.reshape(1, -1))
            examples.append({"seed": clip.seed, "said": found.text, "true": clip.caption})
    return {**sums.figures(), "examples": examples[:6]}


def drawn_pairs(bank: Tensor, styles: int, count: int) -> Iterator[pairs.Pair]:
    """The pairs of the seeds from 0 on; seed s shows style `s % styles` of the bank."""
    for seed in range(count):
        planned = pairs.plan(seed)
        scenes = []
        for at, layout in zip(planned.seeds, planned.layouts, strict=True):
            packed = pack([layout], [[seed % styles] * MOST], len(PICTOGRAMS))
            picture = compose(packed, bank, torch.Generator().manual_seed(at))
            scenes.append(finish(at, layout, "", picture[0], visible(packed, bank)[0]))
        yield pairs.Pair(seed, (scenes[0], scenes[1]), planned.asked, planned.prompt, planned.answer)


def drawn_clips(bank: Tensor, styles: int, count: int) -> Iterator[moving.Moving]:
    for seed in range(count):
        planned = moving.plan(seed)
        packed = pack(planned.layouts(), [[seed % styles] * MOST] * moving.FRAMES, len(PICTOGRAMS))
        pictures = compose(packed, bank, torch.Generator().manual_seed(seed), frames=moving.FRAMES)
        yield moving.finish(seed, planned, pictures, visible(packed, bank))


def _chunks(items: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(islice(items, _CHUNK)):
        yield chunk


def _explain(explainer: ercr.Explainer, shown: Sequence[Any], prompts: Sequence[str], method: str) -> list[Explanation]:
    return explainer.explain_batch(shown, prompts, method=method, max_new_tokens=64, progress=False)


def _count(sums: Sums, answer: str, wanted: set[str], truth: str) -> set[str]:
    said = set(counts(answer))
    sums.samples += 1
    sums.right += len(said & wanted)
    sums.named += len(said)
    sums.there += len(wanted)
    sums.exact += answer == truth
    return said


def _amounts(found: Explanation, map_: NDArray[np.float32]) -> list[float]:
    """The mean of a map over each picture."""
    return [float(part.mean()) for part in found.geometry.split(map_)]  # type: ignore[union-attr]


def _shares(found: Explanation, name: str) -> NDArray[np.float64]:
    """The share of a noun's evidence in each picture, as the library tells its users."""
    mention = next(m for m in mentions(found.text) if m.name == name)
    shares = np.zeros(len(found.pieces))
    for place in found.word(found.text[mention.start : mention.end]).where():
        shares[place.picture] += place.share
    return shares


def _maps(found: Explanation, name: str) -> NDArray[np.float32]:
    """The evidence for a noun [tokens, 1, cells], by the tokens of its first mention."""
    spans, at = [], 0
    text = "".join(token.text for token in found.tokens)
    at = -(len(text) - len(text.lstrip()))
    for token in found.tokens:
        spans.append((at, at + len(token.text)))
        at += len(token.text)
    mention = next(m for m in mentions(found.text) if m.name == name)
    rows = [t.row for t, (a, b) in zip(found.tokens, spans, strict=True) if a < mention.end and b > mention.start]
    return np.asarray(found.maps[rows])


def _dense(sums: Sums, row: PixelRow, map_: NDArray[Any], mask: NDArray[np.bool_]) -> None:
    pixels = row.to_pixels(map_)
    if mask.any():
        sums.inside.append(float(pixels[mask].mean()))
        sums.outside.append(float(pixels[~mask].mean()))


if __name__ == "__main__":
    main()
