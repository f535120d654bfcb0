"""Signals of every word of several answers about one picture: those of the package and those of the literature.

| signal | what it is | from |
|---|---|---|
| `entropy` | of the model's prediction where the word begins | Malinin and Gales 2021 |
| `attention_1` to `_4` | share of attention to the picture, in each quarter of the blocks | Jiang et al. 2024 (SVAR) |
| `internal_confidence` | highest lens probability over blocks and visual tokens | Jiang et al. 2025 |
| `glsim` | similarity of the word's state with the prompt's and with visual tokens that spell it | Park and Li 2025 |
| `effect_…` | log P of the word with the picture less log P without it | |
| `…_peak`, `…_strength` | highest value of the word's map by a method, stretched and in the method's unit | |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from ercr.explaining.describe import Explained, Measured, describe
from ercr.explaining.explainer import Explainer
from ercr.explaining.grounding import Grounds, measure
from ercr.explaining.together import run_all
from ercr.methods.base import Method, Settings
from ercr.methods.registry import resolve
from ercr.models.base import Adapter
from ercr.models.inputs import as_media
from ercr.trace import Needs, Trace, TraceRequest
from ercr.trace.answers import Inside, answers_about, log_probabilities_behind
from ercr.trace.lens import spelt
from ercr.trace.without_picture import instead_of, other_picture
from ercr.words import Word
from ercr.words.calibration import Calibration
from ercr.words.grounding import WITHOUT, Grounding, Signals, features

if TYPE_CHECKING:
    from ercr.explaining.bulk import Ready
    from ercr.explanation import Explanation

METHODS = ("tam", "ercr")
PICTURES = ("grey", "noise", "other")  # what is shown instead of the picture, beside nothing
_NEAREST = 32  # visual tokens that GLSim compares with, at most a tenth of them
_GLOBAL = 0.6  # weight of its global part


_SUMMED = ("log_probability", "effect_")  # a name of several words has the sum of theirs, else its first word's


@dataclass(frozen=True)
class Read:
    """One answer: its words with their groundings, and further signals of each word by name."""

    words: tuple[Word, ...]
    signals: list[dict[str, float]]  # of each word
    measured: Signals

    def name(self, start: int, stop: int) -> tuple[Grounding, dict[str, float]]:
        """The grounding and signals of some words that name one thing, read as one long word."""
        words, signals = self.words[start:stop], self.signals[start:stop]
        own = words[0].grounding
        assert own is not None, "every word was measured"
        if len(words) == 1:
            return own, signals[0]
        tokens = [token for word in words for token in word.tokens]
        logs = [token.log_probability for token in tokens]
        whole = self.measured.word([token.row for token in tokens], logs, own.content)
        return whole, {
            name: sum(one[name] for one in signals) if name.startswith(_SUMMED) else value
            for name, value in signals[0].items()
        }


@torch.no_grad()
def read(
    explainer: Explainer,
    ready: Ready,
    answers: Sequence[Tensor],
    calibration: Calibration,
    other: Image.Image | None,
) -> list[Read]:
    """Signals of several answers; `other` is the picture that stands for any other one.

    Without it only what needs no further pass is measured, which takes a third of the time.
    """
    adapter, request = explainer.adapter, ready.request
    chosen = [resolve(name) for name in (METHODS if other is not None else ("cam",))]
    needs = Needs(lens=())
    for method, settings in chosen:
        needs = needs.together(method.needs(settings)) or needs
    found = answers_about(adapter, request, answers, needs)
    traces = [trace for trace, _ in found]
    measured = measure(adapter, traces, [request] * len(answers), Grounds(), calibration)
    effects: Sequence[dict[str, Tensor]] = [{} for _ in answers]
    rest = [_of_tokens(adapter, trace, inside) for trace, inside in found]
    if other is not None:
        effects = _without(adapter, request, answers, other)
        for own, confidence in zip(rest, _internal_confidence(adapter, found), strict=True):
            own["internal_confidence"] = confidence
    by_method = [_explain(explainer, ready, traces, measured, *method) for method in chosen]
    return [
        _read([of_method[at] for of_method in by_method], effects[at], rest[at], measured[at])
        for at in range(len(answers))
    ]


def _explain(
    explainer: Explainer,
    ready: Ready,
    traces: Sequence[Trace],
    measured: Sequence[Measured],
    method: Method,
    chosen: Settings,
) -> list[Explanation]:
    parts = run_all(method, chosen, traces)
    jobs = [
        Explained(ready.image, trace, method, chosen, None, *part, signals=own)
        for trace, part, own in zip(traces, parts, measured, strict=True)
    ]
    return describe(explainer.adapter, explainer.name, explainer.revision, jobs)


def _without(
    adapter: Adapter, request: TraceRequest, answers: Sequence[Tensor], other: Image.Image
) -> list[dict[str, Tensor]]:
    """Log-probabilities [R] of each answer's tokens with other pictures."""
    found: list[dict[str, Tensor]] = [{} for _ in answers]
    for kind in PICTURES:

        def make(size: tuple[int, int], kind: str = kind) -> Image.Image:
            return other.resize(size, Image.Resampling.BICUBIC) if kind == "other" else other_picture(size, kind)

        shown = [instead_of(medium, make) for medium in as_media(request.media)]
        pixels = {**request.prepared.pixels, **adapter.pixels_of(shown, request.prepared)}
        logs = log_probabilities_behind(adapter, replace(request.prepared, pixels=pixels), answers)
        for own, column in zip(found, logs, strict=True):
            own[kind] = column.float().cpu()
    return found


def _of_tokens(adapter: Adapter, trace: Trace, inside: Inside) -> dict[str, Tensor]:
    """Signals [R] of an answer's tokens that need more than explaining keeps."""
    words = trace.text.targets[trace.prompts :]
    found = {}
    blocks = len(inside.attention)
    for quarter in range(4):
        part = inside.attention[quarter * blocks // 4 : max((quarter + 1) * blocks // 4, quarter * blocks // 4 + 1)]
        found[f"attention_{quarter + 1}"] = part.mean(0)
    found["glsim"] = _glsim(adapter, trace, inside, words)
    return {name: column.float().cpu() for name, column in found.items()}


def _internal_confidence(adapter: Adapter, found: Sequence[tuple[Trace, Inside]]) -> list[Tensor]:
    """The highest probability [R] of each answer's tokens at visual tokens, which all answers share, over blocks."""
    normed = torch.stack([adapter.final_norm(states) for states in found[0][1].visual])
    answers = [trace.text.targets[trace.prompts :] for trace, _ in found]
    words, index = torch.unique(torch.cat(answers), return_inverse=True)
    every = spelt(adapter, [normed], [words])[0].best_probability[index].float().cpu()
    return list(torch.split(every, [len(answer) for answer in answers]))


def _glsim(adapter: Adapter, trace: Trace, inside: Inside, words: Tensor) -> Tensor:
    """Similarity of each token's state with the prompt's last, and with the visual tokens that spell it best."""
    own = F.normalize(inside.own.float(), dim=-1)
    whole = own @ F.normalize(inside.before.float(), dim=-1)
    likely = adapter.adjust(trace.anchor.columns.mT @ trace.unembed(words).float().mT)  # [N, R]
    count = max(1, min(_NEAREST, len(likely) // 10))
    places = likely.topk(count, dim=0).indices  # [P, R]
    near = F.normalize(inside.visual[-1].float(), dim=-1)[places]  # [P, R, d]
    return _GLOBAL * whole + (1 - _GLOBAL) * (near * own).sum(-1).mean(0)


def _read(
    explanations: Sequence[Explanation], effects: dict[str, Tensor], rest: dict[str, Tensor], measured: Measured
) -> Read:
    """The words of the last method, each with all its signals; a word's first token stands for it."""
    last = explanations[-1]
    assert last.signals is not None, "it was measured"
    first = last.signals.first
    found = []
    for index, word in enumerate(last.words):
        at = [token.row - first for token in word.tokens]
        grounding = word.grounding
        assert grounding is not None, "every word of the answer was measured"
        total = sum(token.log_probability for token in word.tokens)
        lead = {name: float(column[at[0]]) for name, column in measured.values.items() if not name.startswith(WITHOUT)}
        signals = features(total, grounding.image_effect, lead)
        signals |= {f"effect.{kind}": total - float(column[at].sum()) for kind, column in effects.items()}
        signals |= {name: float(column[at[0]]) for name, column in rest.items()}
        for explanation in explanations:
            own, name = explanation.words[index], explanation.provenance["method"]
            signals |= {f"{name}_peak": own.evidence, f"{name}_strength": own.strength}
        found.append({name.replace(".", "_"): value for name, value in signals.items()})
    return Read(last.words, found, last.signals)
