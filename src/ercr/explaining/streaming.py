"""A token and its map as soon as it is spoken: the same numbers as in a batch, one row at a time.

Greedy decoding takes its steps in this thread, and the map of a token is made between two steps. For every other kind
of decoding the model's `generate` runs in a second thread and reports each token. The views run before the first
token, because they depend on the image alone.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.explaining.describe import refuse_overflow
from ercr.explanation import Explanation
from ercr.image.geometry import Floats
from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.models.base import Adapter
from ercr.trace import Needs, Sample, Trace, View
from ercr.trace.cancel import asked, stopped_when, watch
from ercr.trace.guard import guarded
from ercr.trace.record import Part, Recorder, assemble, auxiliary_views, pad_token, text_rows
from ercr.trace.speak import Speech, end_tokens, is_plain_greedy
from ercr.words.pieces import pieces

_TAIL = 8  # tokens decoded to find what the newest one adds
Finish = Callable[[Trace, Evidence, Result], Explanation]


@dataclass(frozen=True)
class Step:
    """One spoken token: its text, its map [h, w] and everything said so far. End markers are special, without text."""

    index: int
    text: str
    id: int
    probability: float
    map: Floats
    said: str
    special: bool


class Stream:
    """Iterate over `Step`s while the model speaks. Leaving the loop early stops the model."""

    def __init__(
        self,
        adapter: Adapter,
        sample: Sample,
        method: Method,
        settings: Settings,
        generation: dict[str, Any],
        finish: Finish,
    ) -> None:
        self._adapter = adapter
        self._sample = sample
        self._method = method
        self._settings = settings
        self._generation = generation
        self._finish = finish
        self._needs: Needs = method.needs(settings)
        self._special = frozenset(adapter.tokenizer.all_special_ids)
        self._begin()

    def _begin(self) -> None:
        self._trace: Trace | None = None
        self._maps: Tensor | None = None  # evidence of all rows so far
        self._evidence: list[Evidence] = []
        self._results: list[Result] = []

    def explanation(self) -> Explanation:
        """What has been said so far, as one explanation."""
        if self._trace is None:
            for _ in self:
                pass
        assert self._trace is not None
        return self._finish(self._trace, join_evidence(self._evidence), join(self._results))

    def __iter__(self) -> Iterator[Step]:
        recorder, views = self._views()
        self._begin()
        plain = is_plain_greedy(self._adapter, self._generation)
        speaker = (Steps if plain else Speaker)(self._adapter, self._sample, recorder, self._generation)
        try:
            for said, norm, layer in speaker.spoken():
                step = self._step(said, norm[0], layer[0], recorder, views)
                speaker.heard(step.id)
                yield step
        finally:
            speaker.stop()

    @guarded
    def _views(self) -> tuple[Recorder, list[View]]:
        """What records this stream, and the views, which depend on the image alone."""
        recorder = Recorder(self._adapter, self._needs.layer)
        return recorder, auxiliary_views(self._adapter, [self._sample], self._needs, recorder)[0]

    @guarded
    def _step(self, said: Tensor, norm: Tensor, layer: Tensor, recorder: Recorder, views: list[View]) -> Step:
        """Extend the trace by a token [1] and explain its row; with the first token come the prompt's rows."""
        token, before = int(said), 0
        if self._trace is None:
            prepared = self._sample.prepared
            anchor = View(1.0, prepared.geometry, recorder.visual(layer[prepared.visual.to(layer.device)]))
            answer = torch.tensor([token])
            trace = assemble(self._adapter, [Part(prepared, answer, norm, (anchor, *views))], self._needs)[0]
            trace.check()
            row = trace.text
        else:
            before = len(self._trace.rows)
            row = text_rows(self._adapter, said, norm[-1:], norm[-1:], self._needs)
            trace = self._trace.then(token, row)
        self._trace = trace
        rows = slice(before, len(trace.rows))
        evidence = self._method.evidence(trace, rows, self._settings)
        self._maps = evidence.maps if self._maps is None else torch.cat([self._maps, evidence.maps])
        self._evidence.append(evidence)
        self._results.append(self._method.refine(trace, self._maps, rows, self._settings))
        return self._newest(trace, self._results[-1].maps[-1], row.log_probabilities[-1:])

    def _newest(self, trace: Trace, newest: Tensor, own: Tensor) -> Step:
        """The newest token on the host: its map and its probability come in one copy."""
        both = torch.cat([newest.flatten(), own.to(newest)]).float()
        ids = trace.ids[trace.input_length :].tolist()
        special = ids[-1] in self._special
        text = "" if special else pieces(self._adapter.decode, ids[-_TAIL:], complete=False)[-1]
        said = str(self._adapter.tokenizer.decode(ids, skip_special_tokens=True)).strip()
        numbers = both.cpu().numpy()  # last, because it waits for the device
        refuse_overflow(self._method.name, numbers)
        shown, probability = numbers[:-1].reshape(tuple(newest.shape)), float(np.exp(numbers[-1]))
        return Step(len(ids) - 1, text, ids[-1], probability, shown, said, special)


class Steps:
    """Greedy decoding; iterating gives each token with the states behind it. The model is free between two tokens."""

    def __init__(self, adapter: Adapter, sample: Sample, recorder: Recorder, generation: dict[str, Any]) -> None:
        self._recorder, self._sample = recorder, sample
        self._ends, self._limit = end_tokens(adapter, generation), int(generation["max_new_tokens"])
        self._speech: Speech | None = None
        self._ended = False

    def _pass(self) -> Tensor:
        if self._speech is not None:
            return self._speech.step()
        own = self._recorder.own
        batch = own.pack([self._sample.prepared], pad_token(own))
        self._speech = Speech(own, batch, self._limit, self._ends)
        return self._speech.first(batch)

    @guarded
    def _next(self) -> tuple[Tensor, Tensor, Tensor]:
        states = self._pass()
        assert self._speech is not None, "the first pass makes it"
        said = self._speech.choose(states)
        return said, *self._recorder.take()

    def spoken(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        while not self._ended:
            yield self._next()

    def heard(self, token: int) -> None:
        """The newest token, once the host knows it: the device need not be asked whether the answer has ended."""
        assert self._speech is not None, "a token was said"
        self._ended = token in self._ends or self._speech.length >= self._limit

    def stop(self) -> None:
        """Nothing runs on its own."""


class Speaker:
    """The model's `generate` in a thread of its own; iterating gives each token with the states behind it."""

    def __init__(self, adapter: Adapter, sample: Sample, recorder: Recorder, generation: dict[str, Any]) -> None:
        from transformers import StoppingCriteriaList

        self._recorder, self._sample = recorder, sample
        self._queue: queue.Queue[tuple[Tensor, Tensor, Tensor] | BaseException | None] = queue.Queue()
        self._stopped = threading.Event()
        self._prompt_seen = False
        criteria = StoppingCriteriaList([*generation.get("stopping_criteria", []), self._should_stop])
        self._options = {**generation, "stopping_criteria": criteria, "streamer": self}
        self._thread: threading.Thread | None = None

    @guarded
    def _speak(self, asked_before: Callable[[], bool] | None) -> None:
        own = self._recorder.own
        try:
            if asked_before is None:
                watch(own)  # else it has been done
            with stopped_when(lambda: self._stopped.is_set() or bool(asked_before and asked_before())):
                inputs = own.collate([self._sample.prepared], pad_token(own))
                own.model.generate(**inputs, **self._options)
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error)

    def put(self, value: Tensor) -> None:
        """Called by `generate`: first with the prompt, then with each new token."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        if value.numel() != 1:
            raise InputError("Assisted decoding cannot stream: use explain(), or leave the assistant out.")
        norm, layer = self._recorder.take()
        self._queue.put((value.flatten(), norm, layer))

    def end(self) -> None:
        """Called by `generate` after the last token."""

    def _should_stop(self, ids: Tensor, scores: Any, **options: Any) -> Tensor:
        return torch.full((len(ids),), self._stopped.is_set(), device=ids.device)

    def heard(self, token: int) -> None:
        """`generate` knows by itself when to end."""

    def spoken(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        self._thread = threading.Thread(target=self._speak, args=(asked(),), name="ercr-generate", daemon=True)
        self._thread.start()
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def stop(self) -> None:
        """The thread stops before its next block; the garbage collector may call this in the thread itself."""
        self._stopped.set()
        if self._thread is not None and self._thread.ident and self._thread is not threading.current_thread():
            self._thread.join()


def join_evidence(parts: list[Evidence]) -> Evidence:
    """Evidence of consecutive rows as one."""
    stages = {name: torch.cat([part.stages[name] for part in parts]) for name in parts[0].stages}
    return Evidence(torch.cat([part.maps for part in parts]), stages)


def join(results: list[Result]) -> Result:
    """Results of consecutive rows as one; context rows are padded to the same length."""

    def stacked(name: str) -> Tensor | None:
        parts = [getattr(result, name) for result in results]
        if any(part is None for part in parts):
            return None
        width = parts[-1].shape[-1]
        return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts])

    beta = None if results[0].beta is None else torch.cat([r.beta for r in results if r.beta is not None])
    return Result(torch.cat([r.maps for r in results]), stacked("alpha"), beta, stacked("relevance"))
