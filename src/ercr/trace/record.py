"""One run of a model, recorded. Methods read what it leaves behind and never the model.

The visual states are taken by a hook on the final norm while the answer is generated, so explaining costs no second
pass. Nothing later than the image can change them (the decoder is causal), so an auxiliary view is one short pass
that stops at the last image token. Vocabulary-wide logits are computed at text positions only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ercr.errors import ModelStateError
from ercr.models.base import Adapter, Prepared, ViewKind
from ercr.trace.data import Needs, Sample, TextRows, Trace, View, checked_layer, refuse_image_tokens
from ercr.trace.replay import Replay
from ercr.trace.speak import Speech, answers, end_tokens, is_plain_greedy

_HEAD_ROWS = 8192  # rows of the head in float32 at once
_RANK_ENTRIES = 2**21  # logits ranked at once; ranking takes several 8-byte copies of them


class Recorder:
    """Collects the outputs of some modules during passes of the model; its hooks live inside a `with` block."""

    def __init__(self, adapter: Adapter, layer: int) -> None:
        self.norm: list[Tensor] = []
        self.block: list[Tensor] = []
        self._adapter = adapter
        self._thread = 0
        # 0: embeddings, n: after block n, last: after the final norm
        self._index = checked_layer(layer, len(adapter.blocks) + 1)

    @property
    def at_end(self) -> bool:
        return self._index == len(self._adapter.blocks)

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        with self._adapter.lock:
            self._thread = threading.get_ident()
            handles = [self._adapter.final_norm.register_forward_hook(self._keep_output)]
            try:
                if not self.at_end:
                    block = self._adapter.blocks[self._index]
                    handles.append(block.register_forward_pre_hook(self._keep_input, with_kwargs=True))
                yield self
            finally:
                for handle in handles:
                    handle.remove()

    def take(self) -> tuple[Tensor, Tensor]:
        """Final states and states of the asked layer [B, positions, d] since the last call."""
        norm = torch.cat(self.norm, dim=1)
        block = norm if self.at_end else torch.cat(self.block, dim=1)
        self.norm.clear()
        self.block.clear()
        return norm, block

    def visual(self, layer_states: Tensor) -> Tensor:
        """States of an earlier layer pass the final norm before they are read."""
        if self.at_end:
            return layer_states
        norm: Tensor = self._adapter.final_norm(layer_states)
        return norm

    def _keep_output(self, _: nn.Module, args: Any, output: Tensor) -> None:
        # a stream's maps are made in another thread, which may call the same norm
        if threading.get_ident() == self._thread:
            self.norm.append(output)

    def _keep_input(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == self._thread:
            self.block.append(args[0] if args else kwargs["hidden_states"])


@torch.no_grad()
def trace_samples(adapter: Adapter, samples: Sequence[Sample], needs: Needs, generation: dict[str, Any]) -> list[Trace]:
    """Run a batch: answers generated together or given, then the auxiliary views, one pass per scale."""
    recorder = Recorder(adapter, needs.layer)
    if all(sample.answer is not None for sample in samples):
        run = _read_answers(adapter, samples, [s.answer for s in samples if s.answer is not None], recorder)
    else:
        speak = _speak if is_plain_greedy(adapter, generation) else _generate
        run = speak(adapter, samples, recorder, generation)
    traces = []
    views = auxiliary_views(adapter, samples, needs, recorder)
    for row, sample in enumerate(samples):
        prepared = sample.prepared
        visual = run.layer[row, run.offsets[row] + prepared.visual.to(run.layer.device)]
        anchor = View(1.0, prepared.geometry, recorder.visual(visual))
        states = run.norm[row, run.offsets[row] :]
        traces.append(assemble(adapter, prepared, run.answers[row], states, (anchor, *views[row]), needs))
    return traces


@dataclass(frozen=True)
class _Run:
    """Recorded states [B, positions, d] of a batch; a sample's first token is at its offset."""

    answers: list[Tensor]
    norm: Tensor
    layer: Tensor
    offsets: Sequence[int]


def _read_answers(adapter: Adapter, samples: Sequence[Sample], answers: list[Tensor], recorder: Recorder) -> _Run:
    """One pass over prompts and given answers."""
    for answer in answers:
        refuse_image_tokens(answer, adapter.image_token_id)
    full = [sample.prepared.with_answer(answer) for sample, answer in zip(samples, answers, strict=True)]
    norm, layer = forward(adapter, full, recorder)
    return _Run(answers, norm, layer, [norm.shape[1] - len(sample.input_ids) for sample in full])


def _speak(adapter: Adapter, samples: Sequence[Sample], recorder: Recorder, generation: dict[str, Any]) -> _Run:
    """Greedy answers, with the states passed through on the way."""
    batch = adapter.pack([sample.prepared for sample in samples], pad_token(adapter))
    speech = Speech(adapter, batch, int(generation["max_new_tokens"]), end_tokens(adapter, generation))
    norms, layers, rows = [], [], len(samples)
    with recorder.recording():
        states = speech.first(batch)
        while True:
            norm, layer = recorder.take()
            norms.append(speech.spread(norm, rows))
            layers.append(norms[-1] if recorder.at_end else speech.spread(layer, rows))
            if not speech.hear(states):
                break
            states = speech.step()
    norm = torch.cat(norms, dim=1)
    return _Run(answers(speech.tokens), norm, norm if recorder.at_end else torch.cat(layers, dim=1), batch.offsets)


def _generate(adapter: Adapter, samples: Sequence[Sample], recorder: Recorder, generation: dict[str, Any]) -> _Run:
    """Answers by the model's own `generate`, with the states it passed through on the way."""
    prepared = [sample.prepared for sample in samples]
    inputs = adapter.collate(prepared, pad_token(adapter))
    length = inputs["input_ids"].shape[1]
    with recorder.recording():
        sequences = adapter.model.generate(**inputs, **generation)
    sequences = getattr(sequences, "sequences", sequences)
    ends = generation.get("eos_token_id", adapter.model.generation_config.eos_token_id)
    answers = [cut_answer(row[length:].cpu(), ends, pad_token(adapter)) for row in sequences]
    norm, layer = recorder.take()
    # beams, assistants and the like visit other positions: then the answers are read again in one pass
    if norm.shape[:2] != (len(samples), sequences.shape[1] - 1):
        return _read_answers(adapter, samples, answers, recorder)
    return _Run(answers, norm, layer, [length - len(sample.input_ids) for sample in prepared])


def forward(
    adapter: Adapter, samples: Sequence[Prepared], recorder: Recorder, kind: ViewKind = "pad"
) -> tuple[Tensor, Tensor]:
    """One pass without the language head over left-padded samples: final and asked-for states [B, L, d]."""
    batch = adapter.pack(samples, pad_token(adapter))
    with recorder.recording(), adapter.view_context(kind):
        adapter.read(adapter.embed(batch), batch.positions, batch.mask)
    return recorder.take()


@torch.no_grad()
def auxiliary_views(adapter: Adapter, samples: Sequence[Sample], needs: Needs, recorder: Recorder) -> list[list[View]]:
    """The views at scales other than 1, per sample; all samples of a scale share a pass."""
    views: list[list[View]] = [[] for _ in samples]
    for scale in sorted(set(needs.scales) - {1.0}):
        prepared = [adapter.view(s.image, s.prepared, scale, needs.kind) for s in samples]
        _, layer = forward(adapter, prepared, recorder, needs.kind)
        for row, view in enumerate(prepared):
            at = layer.shape[1] - len(view.input_ids) + view.visual.to(layer.device)
            views[row].append(View(scale, view.geometry, recorder.visual(layer[row, at])))
    return views


def assemble(
    adapter: Adapter, prepared: Prepared, answer: Tensor, states: Tensor, views: tuple[View, ...], needs: Needs
) -> Trace:
    """A trace from the recorded final states of one sample, [at least L - 1, d]."""
    ids = torch.cat([prepared.input_ids, answer])
    start = len(prepared.input_ids)
    rows = torch.cat([prepared.prompt, torch.arange(start, len(ids))])
    emit = states[(rows - 1).clamp(min=0).to(states.device)]
    read = states[torch.where(rows < start, rows, rows - 1).to(states.device)]
    for view in views:
        check_finite(view.states, f"visual (scale {view.scale:g})")
    return Trace(
        ids=ids,
        input_length=start,
        rows=rows,
        prompts=len(prepared.prompt),
        text=text_rows(adapter, ids[rows], emit, read, needs),
        views=views,
        vocabulary=vocabulary_size(adapter),
        unembed=lambda wanted: adapter.unembedding_rows(wanted).to(states.device),
        argmax=lambda wanted: adapter.head(wanted).argmax(-1),
        spell=lambda wanted: respell(adapter, wanted),
        inside=Replay(adapter, prepared.with_answer(answer), rows - 1, ids[rows]) if needs.replay else None,
    )


def text_rows(adapter: Adapter, ids: Tensor, emit: Tensor, read: Tensor, needs: Needs) -> TextRows:
    """What is known of text tokens from the states [S, d] that emit them and that they are read at."""
    check_finite(emit, "text")
    targets = ids.to(emit.device)
    special = torch.tensor(adapter.tokenizer.all_special_ids, device=emit.device)
    return TextRows(
        ~torch.isin(targets, special),
        targets,
        adapter.unembedding_rows(targets).to(emit.device),
        emit,
        read,
        *ranked(adapter, emit, targets, needs.top),
    )


def vocabulary_size(adapter: Adapter) -> int:
    return int(adapter.model.config.get_text_config().vocab_size)


def logits(adapter: Adapter, states: Tensor) -> Tensor:
    """Vocabulary-wide logits [R, V] in float32 or better, whatever the model's precision.

    Half-precision logits tie by the dozen near the top, and ranked lists would order ties by accident. The head's
    rows are widened a few thousand at a time, so the whole matrix never exists twice.
    """
    weight = getattr(adapter.head, "weight", None)
    wide = weight is not None and torch.promote_types(weight.dtype, torch.float32) == weight.dtype
    if wide or not isinstance(adapter.head, nn.Linear) or weight is None or weight.device.type == "meta":
        out: Tensor = adapter.head(states)
        return out.to(torch.promote_types(out.dtype, torch.float32))
    bias = adapter.head.bias
    precise = states.to(weight.device, torch.float32)
    parts = [
        F.linear(precise, part.float(), None if bias is None else bias[start : start + len(part)].float())
        for start, part in zip(range(0, len(weight), _HEAD_ROWS), weight.split(_HEAD_ROWS), strict=True)
    ]
    return torch.cat(parts, dim=-1)


def ranked(adapter: Adapter, states: Tensor, targets: Tensor, depth: int) -> tuple[Tensor, Tensor, Tensor]:
    """Top lists [R, k], their probabilities, and the log-probabilities [R] of the targets; ties by lower id."""
    vocabulary = vocabulary_size(adapter)
    scores = logits(adapter, states)[:, :vocabulary].float()
    total = scores.logsumexp(-1, keepdim=True)
    step = max(1, _RANK_ENTRIES // vocabulary)
    parts = [stable_top(scores[i : i + step], min(depth, vocabulary)) for i in range(0, len(scores), step)]
    top = torch.cat(parts) if parts else scores[:, :0].long()
    own = scores.gather(1, targets[:, None].to(scores.device)) - total
    listed = (scores.gather(1, top) - total).exp()
    return top.to(states.device), listed.to(states.device), own[:, 0].to(states.device)


def stable_top(scores: Tensor, depth: int) -> Tensor:
    """Indices of the largest float32 values [R, k]; equal values by lower index, which topk alone leaves open."""
    bits = scores.view(torch.int32).long()
    ordered = torch.where(bits >= 0, bits, -(2**31) - bits)  # floats as integers in the same order
    index = torch.arange(scores.shape[-1], device=scores.device)
    return (ordered * 2**32 - index).topk(depth, dim=-1).indices


def check_finite(states: Tensor, where: str) -> None:
    if not bool(torch.isfinite(states).all()):
        raise ModelStateError(
            f"The model's {where} states contain NaN or infinity, so there is nothing to explain: "
            f"load it with another dtype (bfloat16 or float32)."
        )


def cut_answer(tokens: Tensor, ends: int | Sequence[int] | None, pad: int) -> Tensor:
    """The answer up to and including its end token, without the padding that a batch adds."""
    stops = [ends] if isinstance(ends, int) else list(ends or [])
    at = torch.isin(tokens, torch.tensor(stops, dtype=tokens.dtype)).nonzero()
    if len(at):
        return tokens[: int(at[0]) + 1]
    spoken = (tokens != pad).nonzero()
    return tokens[: int(spoken[-1]) + 1] if len(spoken) else tokens[:0]


def pad_token(adapter: Adapter) -> int:
    for source in (adapter.tokenizer, adapter.model.generation_config, adapter.config):
        token = getattr(source, "pad_token_id", None)
        if token is not None:
            return int(token)
    ends = adapter.model.generation_config.eos_token_id
    return int(ends[0] if isinstance(ends, list) else ends or 0)


def respell(adapter: Adapter, ids: Tensor) -> list[str]:
    """Token strings after decoding and tokenising again."""
    text = adapter.tokenizer.decode(ids.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return [str(token) for token in adapter.tokenizer.tokenize(text)]
