"""Runs of many samples that begin and end at different times; records what traces need of each.

Answers are decoded greedily in slots (`speaking.py`); a given answer takes one pass with its prompt. Views and prompts
of new samples are read together, padded to the longest of them. Everything else (sampling, states of earlier layers, a
second pass) runs batch by batch in `record.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ercr.models.base import Adapter
from ercr.trace.cancel import cancellable
from ercr.trace.compiled import quick_passes, with_quick_passes
from ercr.trace.data import Needs, TraceRequest, View
from ercr.trace.graphs import Graphs
from ercr.trace.greedy import Generation, end_tokens, is_plain_greedy
from ercr.trace.record import SampleRun, auxiliary_views, read_answers
from ercr.trace.recorder import Recorder
from ercr.trace.slots import ModuleSlots, has_plain_cache
from ercr.trace.speaking import Said, Speaking
from ercr.trace.tokens import pad_token


def flows(adapter: Adapter, needs: Needs, generation: Generation) -> bool:
    """Whether samples of such a run can begin and end at different times."""
    at_end = needs.layer in (-1, len(adapter.blocks))
    plain = at_end and needs.cells and not (needs.replay or needs.changed or needs.lens)
    return plain and adapter.batches and is_plain_greedy(adapter, generation) and has_plain_cache(adapter)


def packs(adapter: Adapter) -> bool:
    """Whether samples of any lengths share a pass without padding."""
    passes = quick_passes(adapter)
    return passes is not None and passes.packs


class Flow:
    """Samples in work: `begin` some, then `advance` until their runs come out."""

    def __init__(self, adapter: Adapter, needs: Needs, generation: Generation, rows: int) -> None:
        adapter = with_quick_passes(adapter)
        self.adapter, self.needs = adapter, needs
        self._recorder = Recorder(adapter, needs.layer)
        self._open: dict[int, tuple[TraceRequest, list[View]]] = {}
        self._over: list[tuple[int, SampleRun]] = []
        limit, ends = int(generation["max_new_tokens"]), end_tokens(adapter, generation)
        if adapter.compiled is not None:
            self._speaking: Speaking = adapter.compiled.speaking(rows, limit, ends)
        else:
            own = cancellable(adapter)
            graphs = Graphs(adapter.device)
            self._speaking = Speaking(own, lambda length: ModuleSlots(own, rows, length), rows, limit, ends, graphs)

    @property
    def free(self) -> int:
        """How many more samples can begin."""
        return self._speaking.free

    @torch.no_grad()
    def begin(self, samples: Mapping[int, TraceRequest]) -> None:
        """Read pictures and prompts of new samples. If that fails, none of them has begun."""
        names, requests = list(samples), list(samples.values())
        views = dict(zip(names, auxiliary_views(self.adapter, requests, self.needs, self._recorder), strict=True))
        given = [name for name in names if samples[name].answer is not None]
        asked = [name for name in names if samples[name].answer is None]
        read = self._read([samples[name] for name in given]) if given else []
        if asked:
            batch = self.adapter.pack([samples[name].prepared for name in asked], pad_token(self.adapter))
            self._speaking.begin(batch, asked)
        self._open |= {name: (samples[name], views[name]) for name in asked}
        for name, (answer, states) in zip(given, read, strict=True):
            self._over.append((name, self._run(samples[name], views[name], answer, states)))

    def advance(self) -> list[tuple[int, SampleRun]]:
        """Generate some tokens for everybody; the runs that have ended."""
        said: list[Said] = self._speaking.advance()
        over, self._over = self._over, []
        return over + [(one.name, self._run(*self._open.pop(one.name), one.answer, one.states)) for one in said]

    def stop(self) -> None:
        """Forget the samples that have not ended."""
        if self.adapter.compiled is not None:
            self.adapter.compiled.done(self._speaking)
        self._speaking.drop_all()
        self._open.clear()
        self._over.clear()

    def _read(self, samples: Sequence[TraceRequest]) -> list[tuple[Tensor, Tensor]]:
        """Given answers with the final states of prompt and answer."""
        answers = [sample.answer for sample in samples if sample.answer is not None]
        run = read_answers(self.adapter, samples, answers, self._recorder)
        return [(answer, run.norm[row, run.offsets[row] :]) for row, answer in enumerate(answers)]

    def _run(self, sample: TraceRequest, views: Sequence[View], answer: Tensor, states: Tensor) -> SampleRun:
        prepared = sample.prepared
        anchor = View(1.0, prepared.geometry, states[prepared.visual.to(states.device)])
        lens = None if self.needs.lens is None else anchor.states[None]
        return SampleRun(prepared, answer, states, (anchor, *views), media=sample.media, lens=lens)
