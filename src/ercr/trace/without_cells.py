"""Runs of models whose visual tokens have no place on the picture: their answers, and how probable the words were.

Nothing of the inside is recorded. Answers are the model's own `generate`'s, and logits those of its whole forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ercr.models.base import Adapter
from ercr.models.whole import logits_before, spoken
from ercr.trace.cancel import cancellable
from ercr.trace.changed import ChangedPictures
from ercr.trace.data import Needs, TextRows, Trace, TraceRequest, View
from ercr.trace.greedy import Generation
from ercr.trace.ranked import ranked_scores
from ercr.trace.tokens import cut_answer, pad_token, retokenise


@torch.no_grad()
def trace_without_cells(
    adapter: Adapter, samples: Sequence[TraceRequest], needs: Needs, generation: Generation
) -> list[Trace]:
    """Traces without visual states, one sample after another."""
    own = cancellable(adapter)
    return [_trace(adapter, own, sample, needs, generation) for sample in samples]


def _trace(adapter: Adapter, own: Adapter, sample: TraceRequest, needs: Needs, generation: Generation) -> Trace:
    prepared, answer = sample.prepared, sample.answer
    if answer is None:
        ends = generation.get("eos_token_id", adapter.model.generation_config.eos_token_id)
        answer = cut_answer(spoken(own, prepared, generation), ends, pad_token(adapter))
    ids, start = torch.cat([prepared.input_ids, answer]), len(prepared.input_ids)
    rows = torch.cat([prepared.prompt, torch.arange(start, len(ids))])
    scores = logits_before(own, [prepared], answer, rows)[0]
    text = _text_rows(adapter, ids[rows].to(scores.device), scores, needs)
    return Trace(
        ids=ids,
        input_length=start,
        rows=rows,
        prompts=len(prepared.prompt),
        text=text,
        views=(View(1.0, prepared.geometry, scores.new_empty(0, 0)),),
        vocabulary=scores.shape[-1],
        unembed=lambda wanted: scores.new_empty(len(wanted), 0),
        argmax=lambda wanted: torch.zeros(len(wanted), dtype=torch.long),
        spell=lambda wanted: retokenise(adapter, wanted),
        beside=ChangedPictures(adapter, sample.media, prepared, answer, rows) if needs.changed else None,
        finite={"text": ~torch.isnan(text.log_probabilities).any()},
    )


def _text_rows(adapter: Adapter, targets: Tensor, scores: Tensor, needs: Needs) -> TextRows:
    plain = adapter.plain_tokens.to(targets.device)[targets]
    none = scores.new_empty(len(targets), 0)
    return TextRows(plain, targets, none, none, none, *ranked_scores(scores, targets, needs.top))
