"""What tells seen words from guessed ones: signals of a batch of traces, from one more pass without the pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.explaining.describe import Measured
from ercr.models.base import Adapter
from ercr.trace import Trace, TraceRequest
from ercr.trace.lens import Rivals, Spelt, spelt
from ercr.trace.ranked import entropies
from ercr.trace.without_picture import TEXT, without_picture
from ercr.words.calibration import Calibration
from ercr.words.grounding import WITHOUT

_RIVALS = 10  # most probable words at a place, with which the word that stands there is compared


@dataclass(frozen=True)
class Grounds:
    """How words are told apart: what stands instead of the picture, and the calibration (None: the model's own).

    The text alone is weighed; further ones (grey, black, noise) cost a whole pass each and are reported. `depths` are
    further layers in which visual tokens are read, as shares of the decoder's depth: `lens_rank` and `lens_probability`
    are the best over all layers, while the calibrations weigh the last one.
    """

    without: Sequence[str] = (TEXT,)
    depths: Sequence[float] = ()
    calibration: Calibration | str | os.PathLike[str] | None = None


def as_grounds(grounding: bool | str | Grounds) -> Grounds | None:
    """Options from what a caller gave: whether at all, the name of a calibration, or all of them."""
    if isinstance(grounding, Grounds):
        return grounding
    if isinstance(grounding, str):
        return Grounds(calibration=grounding)
    if not isinstance(grounding, bool):
        raise InputError(
            f"grounding must be True, False, the name of a calibration or Grounds(…), not {type(grounding).__name__}."
        )
    return Grounds() if grounding else None


@torch.no_grad()
def measure(
    adapter: Adapter,
    traces: Sequence[Trace],
    requests: Sequence[TraceRequest],
    grounds: Grounds,
    calibration: Calibration,
) -> list[Measured]:
    """The signals of every answer's tokens [R], one more pass for the whole batch."""
    answers = [trace.ids[trace.input_length :] for trace in traces]
    values: list[dict[str, Tensor]] = [{} for _ in traces]
    for kind, logs in without_picture(adapter, requests, answers, grounds.without).items():
        for own, column in zip(values, logs, strict=True):
            own[WITHOUT + kind] = column.float()
    states = [trace.lens for trace in traces]
    if all(one is not None for one in states):
        found = spelt(adapter, cast("list[Tensor]", states), answers, [_rivals(trace) for trace in traces])
        for own, one in zip(values, found, strict=True):
            own |= _named(one)
    for own, said, answer in zip(values, _said(adapter, traces), answers, strict=True):
        own |= said | _usual(calibration, answer, adapter.vocabulary)
    return [Measured(own, calibration) for own in values]


def _named(one: Spelt) -> dict[str, Tensor]:
    return {
        "lens.size": one.size,
        "lens.mean": one.mean,
        **({} if one.lead is None else {"lens.lead": one.lead}),
        "lens.last_rank": one.rank,
        "lens.last_probability": one.probability,
        "lens.rank": one.best_rank,
        "lens.probability": one.best_probability,
        "focus": one.focus,
    }


def _said(adapter: Adapter, traces: Sequence[Trace]) -> list[dict[str, Tensor]]:
    """How unsure the model was of what to say where each token stands, and whether the token was its own choice."""
    texts = [(trace.text, slice(trace.prompts, None)) for trace in traces]
    states = [text.emit_states[rows] for text, rows in texts]
    if not all(one.shape[-1] for one in states):  # a model whose insides are not read
        return [{} for _ in traces]
    entropy = torch.split(entropies(adapter, torch.cat(states)), [len(one) for one in states])
    chosen = [text.top_ids[rows, 0] == text.targets[rows].to(text.top_ids.device) for text, rows in texts]
    return [{"entropy": doubt, "chosen": own.float()} for doubt, own in zip(entropy, chosen, strict=True)]


def _rivals(trace: Trace) -> Rivals:
    """What the model would rather or also have said in the place of each token of the answer."""
    text, rows = trace.text, slice(trace.prompts, None)
    return Rivals(text.top_ids[rows, :_RIVALS], text.top_probabilities[rows, :_RIVALS])


def _usual(calibration: Calibration, answer: Tensor, vocabulary: int) -> dict[str, Tensor]:
    """How strongly pictures usually spell the tokens, if the calibration knows this model's vocabulary."""
    known = calibration.usual
    if known is None or len(known) != vocabulary:
        return {}
    places = answer.cpu().numpy()
    columns = {"lens.usual_size": known.size, "lens.usual_mean": known.mean}
    return {name: torch.from_numpy(column[places]).float() for name, column in columns.items()}
