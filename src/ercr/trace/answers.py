"""Many given answers about one picture: the prompt is read once, and all answers behind it in a second pass.

Beside traces, it keeps what signals of the literature are computed from: how much of their attention the emitting
positions give to the picture, and states of some blocks. It is for evaluations: explaining needs none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ercr.models.base import Adapter
from ercr.models.inputs import Batch, Inputs, Prepared
from ercr.trace.attention import Backend, describe, repeat_heads, replace_attention
from ercr.trace.cancel import cancellable
from ercr.trace.data import Needs, Trace, TraceRequest, View
from ercr.trace.lens import lens_layers
from ercr.trace.ranked import own_log_probabilities
from ercr.trace.record import SampleRun, assemble, auxiliary_views
from ercr.trace.recorder import Recorder
from ercr.trace.tokens import pad_token

_LAYERS = 10  # evenly spaced ones, whose states are kept


@dataclass(frozen=True)
class Inside:
    """What one answer's pass looked like inside."""

    attention: Tensor  # [blocks, R] the share of each token's attention that goes to visual tokens, mean over heads
    own: Tensor  # [R, d] states at the tokens themselves, before the last block
    before: Tensor  # [d] the same at the last token of the prompt
    visual: Tensor  # [K, N, d] states of visual tokens after some blocks


@dataclass
class _Pass:
    """States of one pass: behind the final norm, and after some blocks."""

    final: Tensor  # [B, positions, d]
    blocks: dict[int, Tensor]  # by the number of blocks before them
    attention: list[Tensor]  # of every block, [B, positions]


@torch.no_grad()
def answers_about(
    adapter: Adapter, request: TraceRequest, answers: Sequence[Tensor], needs: Needs
) -> list[tuple[Trace, Inside]]:
    """Traces of all answers behind one prompt, as single runs would give them, and what each looked like inside."""
    prepared, watch = request.prepared, _Watch(adapter, request.prepared.visual, lens_layers(adapter, needs.lens))
    read = _reader(adapter, prepared)
    views = auxiliary_views(adapter, [request], needs, Recorder(adapter, needs.layer))[0]
    parts, insides = [], []
    for answer, (prompt, rest) in zip(answers, read(watch, prepared, answers), strict=True):
        kept = range(len(answer))
        visual = prepared.visual.to(prompt.final.device)
        anchor = View(1.0, prepared.geometry, prompt.final[0, visual])
        earlier = [adapter.final_norm(prompt.blocks[at][0, visual]) for at in lens_layers(adapter, needs.lens)]
        lens = None if needs.lens is None else torch.stack([*earlier, anchor.states])
        states = torch.cat([prompt.final[0], rest.final[0, : len(answer)]])
        parts.append(SampleRun(prepared, answer, states, (anchor, *views), None, request.media, lens))
        insides.append(
            Inside(
                attention=torch.stack([share[0, list(kept)] for share in rest.attention]),
                own=rest.blocks[watch.depth - 1][0, [at + 1 for at in kept]],
                before=rest.blocks[watch.depth - 1][0, 0],
                visual=torch.stack([prompt.blocks[at][0, visual] for at in watch.layers]),
            )
        )
    return list(zip(assemble(adapter, parts, replace(needs, replay=False)), insides, strict=True))


@torch.no_grad()
def log_probabilities_behind(adapter: Adapter, prompt: Prepared, answers: Sequence[Tensor]) -> list[Tensor]:
    """Log-probabilities [R] of the tokens of each answer behind one prompt."""
    watch = _Watch(adapter, prompt.visual)
    emits = [
        rest.final[0, : len(answer)]
        for answer, (_, rest) in zip(answers, _reader(adapter, prompt)(watch, prompt, answers), strict=True)
    ]
    logs = own_log_probabilities(adapter, torch.cat(emits), torch.cat(list(answers)))
    return list(torch.split(logs, [len(answer) for answer in answers]))


def _reader(adapter: Adapter, prompt: Prepared) -> Callable[..., Iterator[tuple[_Pass, _Pass]]]:
    last = int(prompt.visual.max()) if len(prompt.visual) else -1
    shared = adapter.steps and last < len(prompt.input_ids) - 1
    return _behind_one_prompt if shared else _one_by_one


class _Watch:
    """A replica of the model that keeps states of some blocks and the attention to the picture."""

    def __init__(self, adapter: Adapter, visual: Tensor, lens: Sequence[int] = ()) -> None:
        self.own, self.depth = cancellable(adapter), len(adapter.blocks)
        even = (max(1, round(self.depth * (i + 1) / _LAYERS)) for i in range(_LAYERS))
        self.layers = sorted({*even})
        self.visual, self.behind = visual, 0  # attention is kept of positions from here on
        self._blocks: dict[int, Tensor] = {}
        self._attention: dict[int, Tensor] = {}
        for at in {*self.layers, *lens, self.depth - 1} - {0}:
            self.own.blocks[at - 1].register_forward_hook(self._keep(at))
        replace_attention(self.own, self._measure)

    def run(self, inputs: Inputs, cache: Any = None) -> _Pass:
        final = self.own.read(inputs, cache)
        found = _Pass(final, dict(self._blocks), [self._attention[at] for at in sorted(self._attention)])
        self._blocks.clear()
        self._attention.clear()
        return found

    def _keep(self, at: int) -> Callable[..., None]:
        def keep(_: nn.Module, args: object, output: Any) -> None:
            self._blocks[at] = output[0] if isinstance(output, tuple) else output

        return keep

    def _measure(self, index: int, original: Backend) -> Backend:
        def function(
            module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any = None, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, Tensor | None]:
            self._attention[index] = self._to_picture(module, query, key, value, kwargs)
            return original(module, query, key, value, mask, *args, **kwargs)

        return function

    def _to_picture(self, module: Any, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]) -> Tensor:
        """Share of the attention [B, positions] of the last positions that goes to visual tokens."""
        facts = describe(module, query, key, value, None, options)
        first = max(self.behind - (key.shape[2] - query.shape[2]), 0)
        rows = torch.arange(first, query.shape[2], device=query.device)
        if self.behind == 0 or not len(rows):
            return query.new_zeros(len(query), 0)
        keys = torch.stack([repeat_heads(each, query.shape[1]) for each in key])
        scores = (query[:, :, first:] @ keys.mT).float() * facts.scaling
        if facts.cap is not None:
            scores = torch.tanh(scores / facts.cap) * facts.cap
        distance = rows[:, None] + key.shape[2] - query.shape[2] - torch.arange(key.shape[2], device=rows.device)
        allowed = (distance >= 0) if facts.window is None else (distance >= 0) & (distance < facts.window)
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        return weights[..., self.visual.to(weights.device)].sum(-1).mean(1)


def _behind_one_prompt(watch: _Watch, prompt: Prepared, answers: Sequence[Tensor]) -> Iterator[tuple[_Pass, _Pass]]:
    """The prompt without its last token in one pass; that token and all answers, padded at their ends, in another."""
    from transformers import DynamicCache

    own, last = watch.own, len(prompt.input_ids) - 1
    batch = own.pack([prompt], pad_token(own))
    batch = batch if prompt.pixels else without_features(own, batch)
    inputs = own.decoder_inputs(batch)
    cache = DynamicCache(config=own.model.config.get_text_config())
    at = batch.positions.reshape(-1, last + 1)[0, -1]
    first = {"inputs_embeds": inputs["inputs_embeds"][:, :last], "position_ids": batch.positions[..., :last]}
    head = watch.run({**first, "attention_mask": None}, cache)
    longest = 1 + max(len(answer) for answer in answers)
    ids = torch.zeros(len(answers), longest, dtype=torch.long)
    for row, answer in zip(ids, answers, strict=True):
        row[: len(answer) + 1] = torch.cat([prompt.input_ids[-1:], answer])
    cache.batch_repeat_interleave(len(answers))
    positions = (at + torch.arange(longest, device=at.device)).expand(len(answers), -1)
    embeds = own.model.get_input_embeddings()(ids.to(own.device))
    watch.behind = last
    tail = watch.run({"inputs_embeds": embeds, "position_ids": positions, "attention_mask": None}, cache)
    for row in range(len(answers)):
        yield head, _part(tail, slice(row, row + 1), slice(None))


def without_features(own: Adapter, batch: Batch) -> Batch:
    """A batch of text alone, for which no picture's features are computed."""
    width = own.model.get_input_embeddings().weight.shape[-1]
    return replace(batch, features=torch.empty(0, width, dtype=own.model.dtype, device=own.device))


def _one_by_one(watch: _Watch, prompt: Prepared, answers: Sequence[Tensor]) -> Iterator[tuple[_Pass, _Pass]]:
    """Whole passes, for models whose prompt cannot be read alone."""
    last = len(prompt.input_ids) - 1
    for answer in answers:
        watch.behind = last
        batch = watch.own.pack([prompt.with_answer(answer)], pad_token(watch.own))
        found = watch.run(watch.own.decoder_inputs(batch))
        yield _part(found, slice(None), slice(0, last)), _part(found, slice(None), slice(last, None))


def _part(found: _Pass, rows: slice, positions: slice) -> _Pass:
    blocks = {at: states[rows, positions] for at, states in found.blocks.items()}
    return _Pass(found.final[rows, positions], blocks, [share[rows] for share in found.attention])
