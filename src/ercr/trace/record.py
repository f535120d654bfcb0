"""Runs the model and records its states as traces. Methods read traces and never run the model.

A hook on the final norm records the visual states while the answer is generated, so explaining needs no second pass.
The decoder is causal, so nothing after the image changes these states: an auxiliary view is one short pass that stops
at the last image token. Logits over the whole vocabulary are computed at text positions only.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ercr.image.sending import sent
from ercr.models.base import Adapter
from ercr.models.inputs import Batch, CompiledPasses, Media, Prepared, ViewKind
from ercr.trace.changed import ChangedPictures
from ercr.trace.data import Needs, TextRows, Trace, TraceRequest, View, refuse_image_tokens
from ercr.trace.greedy import Generation, GreedyDecoder, answer_tokens, end_tokens, is_plain_greedy
from ercr.trace.lens import lens_layers
from ercr.trace.ranked import ranked, vocabulary_size
from ercr.trace.recorder import Recorder, forward
from ercr.trace.replay import Replay
from ercr.trace.speaking import Said
from ercr.trace.tokens import cut_answer, pad_token, retokenise
from ercr.trace.without_cells import trace_without_cells

# tokens up to which views of all scales share a pass; with more, padding costs more time than extra passes, and where
# nothing is padded a pass takes no longer than its kernels
_MAX_SHARED_TOKENS, _MAX_PACKED_TOKENS = 4096, 2**15


@torch.no_grad()
def trace_samples(
    adapter: Adapter, samples: Sequence[TraceRequest], needs: Needs, generation: Generation
) -> list[Trace]:
    """Run a batch: read the given answers or generate them, then run the auxiliary views."""
    sorts = [(sample.answer is not None, adapter.sort(sample.prepared)) for sample in samples]
    if len(set(sorts)) > 1:
        return _mixed(adapter, samples, sorts, needs, generation)
    if len(samples) > 1 and not adapter.batches:
        return [trace for sample in samples for trace in trace_samples(adapter, [sample], needs, generation)]
    if not samples[0].prepared.cells:
        return trace_without_cells(adapter, samples, needs, generation)
    recorder = Recorder(adapter, needs.layer, lens_layers(adapter, needs.lens))
    if samples[0].answer is not None:
        run = read_answers(adapter, samples, [s.answer for s in samples if s.answer is not None], recorder)
    else:
        decode = _decode_greedily if is_plain_greedy(adapter, generation) else _generate
        run = decode(adapter, samples, recorder, generation)
    earlier = recorder.take_lens()
    views = auxiliary_views(adapter, samples, needs, recorder)
    parts = []
    for row, sample in enumerate(samples):
        prepared = sample.prepared
        visual = run.layer[row, run.offsets[row] + prepared.visual.to(run.layer.device)]
        anchor = View(1.0, prepared.geometry, recorder.visual(visual))
        states = run.norm[row, run.offsets[row] :]
        embeds = None if run.embeds is None or not needs.replay else run.embeds[row, run.offsets[row] :]
        at = run.offsets[row] + prepared.visual.to(run.norm.device)
        seen = None
        if needs.lens is not None:
            seen = lens_states(recorder, [layer[row] for layer in earlier], run.norm[row], at)
        parts.append(SampleRun(prepared, run.answers[row], states, (anchor, *views[row]), embeds, sample.media, seen))
    return assemble(adapter, parts, needs)


def _mixed(
    adapter: Adapter, samples: Sequence[TraceRequest], sorts: Sequence[Hashable], needs: Needs, generation: Generation
) -> list[Trace]:
    """Samples of each sort in a run of their own, such as those with given answers."""
    found: dict[int, Trace] = {}
    for sort in dict.fromkeys(sorts):
        rows = [row for row, own in enumerate(sorts) if own == sort]
        traces = trace_samples(adapter, [samples[row] for row in rows], needs, generation)
        found |= dict(zip(rows, traces, strict=True))
    return [found[row] for row in range(len(samples))]


@dataclass(frozen=True)
class _Run:
    """Recorded states [B, positions, d] of a batch; `offsets` are the positions of the samples' first tokens."""

    answers: list[Tensor]
    norm: Tensor
    layer: Tensor
    offsets: Sequence[int]
    embeds: Tensor | None = None  # [B, positions, d] of the prompts, or of prompts and answers


def read_answers(adapter: Adapter, samples: Sequence[TraceRequest], answers: list[Tensor], recorder: Recorder) -> _Run:
    """One pass over the prompts with given answers."""
    for answer in answers:
        refuse_image_tokens(answer, adapter.feature_tokens)
    full = [sample.prepared.with_answer(answer) for sample, answer in zip(samples, answers, strict=True)]
    norm, layer = forward(adapter, full, recorder)
    return _Run(answers, norm, layer, [norm.shape[1] - len(sample.input_ids) for sample in full])


def _decode_greedily(
    adapter: Adapter, samples: Sequence[TraceRequest], recorder: Recorder, generation: Generation
) -> _Run:
    """Generate greedy answers and record the states of their tokens."""
    batch = adapter.pack([sample.prepared for sample in samples], pad_token(adapter))
    if adapter.compiled is not None and not recorder.needs_hooks:
        return _decode_compiled(
            adapter.compiled, batch, int(generation["max_new_tokens"]), end_tokens(adapter, generation)
        )
    decoder = GreedyDecoder(recorder.own, batch, int(generation["max_new_tokens"]), end_tokens(adapter, generation))
    norms, layers, rows = [], [], len(samples)
    states = decoder.prefill(batch)
    while True:
        norm, layer = recorder.take()
        norms.append(decoder.all_rows(norm, rows))
        layers.append(norms[-1] if recorder.at_end else decoder.all_rows(layer, rows))
        if not decoder.append_tokens(states):
            break
        states = decoder.step()
    norm = torch.cat(norms, dim=1)
    layer = norm if recorder.at_end else torch.cat(layers, dim=1)
    return _Run(answer_tokens(decoder.tokens), norm, layer, batch.offsets, decoder.embeds)


def _decode_compiled(compiled: CompiledPasses, batch: Batch, limit: int, ends: Sequence[int]) -> _Run:
    """The same with the passes of compile=True."""
    rows = len(batch.ids)
    speaking = compiled.speaking(rows, limit, ends)
    try:
        speaking.begin(batch, range(rows))
        said = dict[int, Said]()
        while len(said) < rows:
            said.update({one.name: one for one in speaking.advance()})
    finally:
        compiled.done(speaking)
    longest = max(len(said[row].states) + batch.offsets[row] for row in range(rows))
    norm = torch.stack(
        [
            F.pad(said[row].states, (0, 0, offset, longest - offset - len(said[row].states)))
            for row, offset in enumerate(batch.offsets)
        ]
    )
    return _Run([said[row].answer for row in range(rows)], norm, norm, batch.offsets)


def _generate(adapter: Adapter, samples: Sequence[TraceRequest], recorder: Recorder, generation: Generation) -> _Run:
    """Generate answers by the model's own `generate` and record the states of their tokens."""
    prepared = [sample.prepared for sample in samples]
    inputs = adapter.collate(prepared, pad_token(adapter))
    length = inputs["input_ids"].shape[1]
    sequences = recorder.own.model.generate(**inputs, **generation)
    sequences = getattr(sequences, "sequences", sequences)
    ends = generation.get("eos_token_id", adapter.model.generation_config.eos_token_id)
    answers = [cut_answer(row[length:].cpu(), ends, pad_token(adapter)) for row in sequences]
    norm, layer = recorder.take()
    # beam search or an assistant runs other positions, too: then the answers are read again in one pass
    if norm.shape[:2] != (len(samples), sequences.shape[1] - 1):
        recorder.take_lens()
        return read_answers(adapter, samples, answers, recorder)
    return _Run(answers, norm, layer, [length - len(sample.input_ids) for sample in prepared])


def lens_states(recorder: Recorder, earlier: Sequence[Tensor], final: Tensor, visual: Tensor) -> Tensor:
    """Visual states [K, N, d] of some layers behind the final norm, the last layer last, of states [positions, d]."""
    return torch.stack([*(recorder.normed(states[visual.to(states.device)]) for states in earlier), final[visual]])


@torch.no_grad()
def auxiliary_views(
    adapter: Adapter, samples: Sequence[TraceRequest], needs: Needs, recorder: Recorder
) -> list[list[View]]:
    """Per sample, the views at scales other than 1. All samples share a pass; small views of all scales do, too."""
    scales = sorted(set(needs.scales) - {1.0})
    shown = [
        [s.views.get(scale) or adapter.view(s.media, s.prepared, scale, needs.kind) for s in samples]
        for scale in scales
    ]
    results: list[list[View]] = [[] for _ in samples]
    if adapter.batches and _fit_together(shown, adapter.compiled is not None and adapter.compiled.packs):
        passes = [[view for views in shown for view in views]]
    else:
        passes = [part for views in shown for part in _passes(adapter, views)]
    found = [row for together in passes for row in _view_states(adapter, together, recorder, needs.kind)]
    for at, states in enumerate(found):
        scale, row = divmod(at, len(samples))
        results[row].append(View(scales[scale], shown[scale][row].geometry, states))
    return results


def _passes(adapter: Adapter, views: Sequence[Prepared]) -> list[list[Prepared]]:
    """The views of one scale in as few passes as the family allows."""
    together = adapter.batches and len({adapter.sort(view) for view in views}) == 1
    return [list(views)] if together else [[view] for view in views]


def _fit_together(shown: Sequence[Sequence[Prepared]], packed: bool) -> bool:
    """Whether all scales can share one pass: equal image shapes per patch, and few enough tokens with any padding."""
    every = [view for views in shown for view in views]
    names = ("pixel_values", "pixel_values_videos")
    shapes = {tuple(view.pixels[name].shape[1:]) for view in every for name in names if name in view.pixels}
    lengths = [len(view.input_ids) for view in every]
    if packed:
        return len(shapes) == 1 and sum(lengths) <= _MAX_PACKED_TOKENS
    return len(shapes) == 1 and len(every) * max(lengths, default=0) <= _MAX_SHARED_TOKENS


def _view_states(adapter: Adapter, views: Sequence[Prepared], recorder: Recorder, kind: ViewKind) -> list[Tensor]:
    """Visual states [N, d] of each view, from one pass."""
    _, layer = forward(adapter, views, recorder, kind)
    length = layer.shape[1]
    places = [(row + 1) * length - len(view.input_ids) + view.visual for row, view in enumerate(views)]
    states = layer.flatten(0, 1)[sent(torch.cat(places), layer.device)]
    return list(torch.split(recorder.visual(states), [len(own) for own in places]))


@dataclass(frozen=True)
class SampleRun:
    """One sample of a batch after its run: final states [L - 1 or more, d] and its views."""

    prepared: Prepared
    answer: Tensor
    states: Tensor
    views: tuple[View, ...]
    embeds: Tensor | None = None  # [L or less, d] input embeddings with image features
    media: Media | None = None
    lens: Tensor | None = None  # [K, N, d] visual states of some layers, if they were asked for

    @property
    def ids(self) -> Tensor:
        return torch.cat([self.prepared.input_ids, self.answer])

    @property
    def rows(self) -> Tensor:
        """Positions of the text tokens: the prompt's own words, then the answer."""
        start = len(self.prepared.input_ids)
        return torch.cat([self.prepared.prompt, torch.arange(start, start + len(self.answer))])


def assemble(adapter: Adapter, parts: Sequence[SampleRun], needs: Needs) -> list[Trace]:
    """Traces of a batch; the ranked lists of all its text tokens are computed together."""
    emits, reads = [], []
    for part in parts:
        start, rows, device = len(part.prepared.input_ids), part.rows, part.states.device
        emits.append(part.states[(rows - 1).clamp(min=0).to(device)])
        reads.append(part.states[torch.where(rows < start, rows, rows - 1).to(device)])
    ids = torch.cat([part.ids[part.rows] for part in parts])
    text = text_rows(adapter, ids, torch.cat(emits), torch.cat(reads), needs)
    counts = [len(emit) for emit in emits]
    return [_trace(adapter, part, rows, needs) for part, rows in zip(parts, text.split(counts), strict=True)]


def _trace(adapter: Adapter, part: SampleRun, text: TextRows, needs: Needs) -> Trace:
    ids, rows, device = part.ids, part.rows, part.states.device
    replayed, inside = part.prepared.with_answer(part.answer), None
    if needs.replay:
        refuse_image_tokens(part.answer, adapter.feature_tokens)
        at = adapter.feature_positions(part.prepared.input_ids)  # whether they have a cell or not
        features = None if part.embeds is None else part.embeds[at.to(part.embeds.device)]
        inside = Replay(adapter, replayed, rows - 1, ids[rows], features)
    changed = None
    if needs.changed and part.media is not None:
        changed = ChangedPictures(adapter, part.media, part.prepared, part.answer, rows)
    return Trace(
        ids=ids,
        input_length=len(part.prepared.input_ids),
        rows=rows,
        prompts=len(part.prepared.prompt),
        text=text,
        views=part.views,
        vocabulary=vocabulary_size(adapter),
        unembed=lambda wanted: adapter.unembedding_rows(wanted).to(device),
        argmax=lambda wanted: adapter.head(wanted).argmax(-1),
        spell=lambda wanted: retokenise(adapter, wanted),
        spelling=lambda: adapter.letters,
        middle=lambda: adapter.mean_row.to(device),
        inside=inside,
        beside=changed,
        lens=part.lens,
        finite={
            **{f"visual (scale {v.scale:g})": torch.isfinite(v.states).all() for v in part.views},
            "text": torch.isfinite(text.emit_states).all(),
        },
    )


def text_rows(adapter: Adapter, ids: Tensor, emit: Tensor, read: Tensor, needs: Needs) -> TextRows:
    """The TextRows of some tokens, from the states [S, d] that emit them (`emit`) and that TAM reads (`read`)."""
    targets = ids.to(emit.device)
    return TextRows(
        adapter.plain_tokens.to(emit.device).index_select(0, targets),
        targets,
        adapter.unembedding_rows(targets).to(emit.device),
        emit,
        read,
        *ranked(adapter, emit, targets, needs.top),
    )
