"""Streams: each token with its map as soon as it is generated, with the same numbers as without streaming.

Greedy decoding runs in the caller's thread, and a token's map is computed between two steps. For every other kind of
decoding the model's `generate` runs in a second thread and passes on each token. The views are run before the first
token, because they depend only on the image.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.explaining.describe import refuse_overflow
from ercr.explanation import Explanation
from ercr.image.geometry import Floats
from ercr.image.pieces import AnyGeometry
from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.models.base import Adapter
from ercr.trace import Needs, Trace, TraceRequest, View
from ercr.trace.cancel import add_checks, current_condition, stopped_when
from ercr.trace.grad_mode import without_gradients
from ercr.trace.greedy import Generation, GreedyDecoder, end_tokens, is_plain_greedy
from ercr.trace.lens import lens_layers
from ercr.trace.record import SampleRun, assemble, auxiliary_views, lens_states, text_rows
from ercr.trace.recorder import Recorder
from ercr.trace.tokens import pad_token
from ercr.words.pieces import pieces

_TAIL = 8  # tokens that are decoded to find the text of the newest one
Finish = Callable[[Trace, Evidence, Result], Explanation]


@dataclass(frozen=True)
class Step:
    """One generated token: its text and map [h, w]; `said` is the answer so far. End tokens are special and empty.

    `strength` is the highest value of the map before it was stretched, in the method's unit.
    """

    index: int
    text: str
    id: int
    probability: float
    map: Floats
    said: str
    special: bool
    strength: float = 0.0


class Stream:
    """Iterate over `Step`s while the model generates. Leaving the loop early stops the model."""

    def __init__(
        self,
        adapter: Adapter,
        request: TraceRequest,
        method: Method,
        settings: Settings,
        generation: Generation,
        finish: Finish,
        lens: tuple[float, ...] | None = None,
    ) -> None:
        self._adapter = adapter
        self._request = request
        self._method = method
        self._settings = settings
        self._generation = generation
        self._finish = finish
        self._needs: Needs = replace(method.needs(settings), lens=lens)
        self._special = frozenset(adapter.tokenizer.all_special_ids)
        self._begin()

    def _begin(self) -> None:
        self._trace: Trace | None = None
        self._maps: Tensor | None = None  # evidence of all rows so far
        self._evidence: list[Evidence] = []
        self._results: list[Result] = []

    @property
    def geometry(self) -> AnyGeometry:
        """Where the cells of the maps lie."""
        return self._request.prepared.geometry

    def explanation(self) -> Explanation:
        """The explanation of the answer so far; of the whole answer if iteration has not begun."""
        if self._trace is None:
            for _ in self:
                pass
        assert self._trace is not None
        return self._finish(self._trace, join_evidence(self._evidence), join(self._results))

    def __iter__(self) -> Iterator[Step]:
        recorder, views = self._views()
        self._begin()
        plain = is_plain_greedy(self._adapter, self._generation)
        source = (GreedySteps if plain else GenerateThread)(self._adapter, self._request, recorder, self._generation)
        try:
            for token, norm, layer in source.tokens():
                step = self._step(token, norm[0], layer[0], recorder, views)
                source.token_known(step.id)
                yield step
        finally:
            source.stop()

    @without_gradients
    def _views(self) -> tuple[Recorder, list[View]]:
        """The recorder of this stream, and the auxiliary views."""
        recorder = Recorder(self._adapter, self._needs.layer, lens_layers(self._adapter, self._needs.lens))
        views = auxiliary_views(self._adapter, [self._request], self._needs, recorder)[0]
        recorder.take_lens()  # those of the views
        return recorder, views

    @without_gradients
    def _step(self, token_id: Tensor, norm: Tensor, layer: Tensor, recorder: Recorder, views: list[View]) -> Step:
        """Add a token [1] to the trace and explain its row, and with the first token the rows of the prompt."""
        token, before = int(token_id), 0
        if self._trace is None:
            prepared = self._request.prepared
            visual = prepared.visual.to(layer.device)
            anchor = View(1.0, prepared.geometry, recorder.visual(layer[visual]))
            earlier = [states[0] for states in recorder.take_lens()]
            seen = None if self._needs.lens is None else lens_states(recorder, earlier, norm, visual)
            part = SampleRun(prepared, torch.tensor([token]), norm, (anchor, *views), lens=seen)
            trace = assemble(self._adapter, [part], self._needs)[0]
            trace.check()
            row = trace.text
        else:
            before = len(self._trace.rows)
            row = text_rows(self._adapter, token_id, norm[-1:], norm[-1:], self._needs)
            trace = self._trace.then(token, row)
        self._trace = trace
        rows = slice(before, len(trace.rows))
        evidence = self._method.evidence(trace, rows, self._settings)
        self._maps = evidence.maps if self._maps is None else torch.cat([self._maps, evidence.maps])
        self._evidence.append(evidence)
        self._results.append(self._method.refine(trace, self._maps, rows, self._settings))
        result = self._results[-1]
        # what 1 in the map was before it was stretched; without sizes, maps are in the method's unit
        sizes = [size[-1:] for size in (evidence.size, result.size) if size is not None]
        return self._newest(trace, result.maps[-1], [*sizes, row.log_probabilities[-1:]])

    def _newest(self, trace: Trace, newest: Tensor, numbers: Sequence[Tensor]) -> Step:
        """The newest token's step, from its map, sizes and log-probability, which are copied to the CPU together."""
        both = torch.cat([newest.flatten(), *(number.to(newest) for number in numbers)]).float()
        ids = trace.ids[trace.input_length :].tolist()
        special = ids[-1] in self._special
        text = "" if special else pieces(self._adapter.decode, ids[-_TAIL:], complete=False)[-1]
        said = str(self._adapter.tokenizer.decode(ids, skip_special_tokens=True)).strip()
        values = both.cpu().numpy()  # last, because it waits for the device
        refuse_overflow(self._method.name, values)
        shown, (*sizes, log) = values[: newest.numel()].reshape(tuple(newest.shape)), values[newest.numel() :]
        strength = float(shown.max(initial=0.0)) * float(np.prod(sizes))
        return Step(len(ids) - 1, text, ids[-1], float(np.exp(log)), shown, said, special, strength)


class GreedySteps:
    """Greedy decoding in the caller's thread: `tokens()` yields each token with its states [1, positions, d]."""

    def __init__(self, adapter: Adapter, request: TraceRequest, recorder: Recorder, generation: Generation) -> None:
        self._recorder, self._request = recorder, request
        self._ends, self._limit = end_tokens(adapter, generation), int(generation["max_new_tokens"])
        self._decoder: GreedyDecoder | None = None
        self._ended = False

    def _pass(self) -> Tensor:
        if self._decoder is not None:
            return self._decoder.step()
        own = self._recorder.own
        batch = own.pack([self._request.prepared], pad_token(own))
        self._decoder = GreedyDecoder(own, batch, self._limit, self._ends)
        return self._decoder.prefill(batch)

    @without_gradients
    def _next(self) -> tuple[Tensor, Tensor, Tensor]:
        states = self._pass()
        assert self._decoder is not None, "the first pass creates it"
        token = self._decoder.next_tokens(states)
        return token, *self._recorder.take()

    def tokens(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        while not self._ended:
            yield self._next()

    def token_known(self, token: int) -> None:
        """Called with the newest token on the CPU, so that the end is found without reading the device again."""
        assert self._decoder is not None, "a token was generated"
        self._ended = token in self._ends or self._decoder.length >= self._limit

    def stop(self) -> None:
        """Nothing to stop: decoding runs in the caller's thread."""


class GenerateThread:
    """The model's `generate` in a second thread: `tokens()` yields each token with its states [1, positions, d]."""

    def __init__(self, adapter: Adapter, request: TraceRequest, recorder: Recorder, generation: Generation) -> None:
        from transformers import StoppingCriteriaList

        self._recorder, self._request = recorder, request
        self._queue: queue.Queue[tuple[Tensor, Tensor, Tensor] | BaseException | None] = queue.Queue()
        self._stopped = threading.Event()
        self._prompt_seen = False
        criteria = StoppingCriteriaList([*generation.get("stopping_criteria", []), self._should_stop])
        self._options = {**generation, "stopping_criteria": criteria, "streamer": self}
        self._thread: threading.Thread | None = None

    @without_gradients
    def _generate(self, outer_condition: Callable[[], bool] | None) -> None:
        own = self._recorder.own
        try:
            if outer_condition is None:
                add_checks(own)  # otherwise the recorder has added them
            with stopped_when(lambda: self._stopped.is_set() or bool(outer_condition and outer_condition())):
                inputs = own.collate([self._request.prepared], pad_token(own))
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
            raise InputError("Assisted decoding cannot stream: use explain(), or omit assistant_model.")
        norm, layer = self._recorder.take()
        self._queue.put((value.flatten(), norm, layer))

    def end(self) -> None:
        """Called by `generate` after the last token."""

    def _should_stop(self, ids: Tensor, scores: Any, **options: Any) -> Tensor:
        return torch.full((len(ids),), self._stopped.is_set(), device=ids.device)

    def token_known(self, token: int) -> None:
        """Nothing to do: `generate` finds the end itself."""

    def tokens(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        self._thread = threading.Thread(
            target=self._generate, args=(current_condition(),), name="ercr-generate", daemon=True
        )
        self._thread.start()
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def stop(self) -> None:
        """Stop the thread before its next block. The garbage collector may call this in that thread itself."""
        self._stopped.set()
        if self._thread is not None and self._thread.ident and self._thread is not threading.current_thread():
            self._thread.join()


def join_evidence(parts: list[Evidence]) -> Evidence:
    """Concatenate the evidence of consecutive rows."""
    stages = {name: torch.cat([part.stages[name] for part in parts]) for name in parts[0].stages}
    sizes = [part.size for part in parts if part.size is not None]
    return Evidence(torch.cat([part.maps for part in parts]), stages, torch.cat(sizes) if sizes else None)


def join(results: list[Result]) -> Result:
    """Concatenate the results of consecutive rows; their context weights are padded to the same length."""

    def stacked(name: str) -> Tensor | None:
        parts = [getattr(result, name) for result in results]
        if any(part is None for part in parts):
            return None
        width = parts[-1].shape[-1]
        return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts])

    def joined(name: str) -> Tensor | None:
        parts = [part for result in results if (part := getattr(result, name)) is not None]
        return torch.cat(parts) if parts else None

    maps = torch.cat([result.maps for result in results])
    return Result(maps, stacked("alpha"), joined("beta"), stacked("relevance"), joined("size"))
