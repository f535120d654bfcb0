"""Maps of what the model could have said instead, by the same method at the same place; never runs a model.

A candidate takes the place of the token that was said: it has the same earlier words as context and the same view of
the picture. Only methods that read visual states row by row can make such maps, which are those that can stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.explaining.describe import Candidates, strengths
from ercr.methods.base import Method, Settings
from ercr.trace import TextRows, Trace

MOST = 4  # of the model's own candidates, beside the token that was said


def can_compare(method: Method, settings: Settings) -> bool:
    """Whether the method can make maps of words that were not said."""
    needs = method.needs(settings)
    return needs.cells and not needs.replay and not needs.changed and method.streams(settings)


def wanted_tokens(words: Sequence[str], encode: Callable[[str], Sequence[int]]) -> list[int]:
    """The first token of each word, as it goes on a text."""
    found = []
    for word in words:
        ids = encode(f" {word.strip()}") if word.strip() else ()
        if not len(ids):
            raise InputError("A candidate is empty: give at least one letter.")
        found.append(int(ids[0]))
    return found


@torch.no_grad()
def compare(method: Method, settings: Settings, trace: Trace, given: Sequence[int] = ()) -> Candidates:
    """Maps of the model's most probable other tokens of every answer row, and of given tokens."""
    said = trace.text.targets[trace.prompts :]
    ids = torch.cat([_others(trace, said), said.new_tensor(list(given)).expand(len(said), -1)], dim=1)
    evidence = method.evidence(trace, slice(0, len(trace.text.targets)), settings).maps
    columns = [_instead(method, settings, trace, evidence, column) for column in ids.T.contiguous()]
    maps, strength = (torch.stack(parts, dim=1) for parts in zip(*columns, strict=True))
    return Candidates(ids, maps, strength)


def _others(trace: Trace, said: Tensor) -> Tensor:
    """The most probable tokens of each answer row, without the one that was said [R, MOST]."""
    top = trace.text.top_ids[trace.prompts :]
    kept = top != said[:, None]
    order = (~kept).to(torch.int8).argsort(dim=1, stable=True)  # the said token goes to the end
    return top.gather(1, order)[:, :MOST]


def _instead(
    method: Method, settings: Settings, trace: Trace, evidence: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """Maps [R, h, w] and strengths [R] of one token for each answer row, which stand behind the text's own rows."""
    text, first = trace.text, trace.prompts
    places = torch.arange(len(text.targets), device=text.targets.device)
    rows, said = trace.unembed(tokens).to(text.unembedding), text.unembedding[first:]
    # how much more probable it was than the token that was said, by their logits at the emitting position
    ahead = (text.emit_states[first:].float() * (rows.float() - said.float())).sum(-1)
    instead = {
        "context": torch.zeros_like(text.context[first:]),
        "targets": tokens,
        "unembedding": rows,
        "log_probabilities": (text.log_probabilities[first:] + ahead.to(text.log_probabilities)).clamp(max=0),
    }
    columns = {
        field.name: torch.cat([column, instead.get(field.name, column[first:])])
        for field in fields(text)
        if (column := getattr(text, field.name)) is not None
    }
    doubled = TextRows(**{**columns, "places": torch.cat([places, places[first:]])})
    longer = replace(trace, text=doubled)
    new = slice(len(text.targets), len(text.targets) + len(tokens))
    found = method.evidence(longer, new, settings)
    result = method.refine(longer, torch.cat([evidence, found.maps]), new, settings)
    return result.maps, strengths(found, result)
