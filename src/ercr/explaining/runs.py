"""What explaining is made of: samples prepared from pictures and prompts, runs of a batch, and their explanations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.explaining.bulk import Lost, Ready, Wait, few_collections, in_batches, in_flow, ready_to_copy
from ercr.explaining.candidates import can_compare, compare, wanted_tokens
from ercr.explaining.describe import Candidates, Explained, Measured, describe
from ercr.explaining.grounding import Grounds, measure
from ercr.explaining.media import Asked, MediaLike, asked, load, media, refuse_long, turns_of
from ercr.explaining.sizes import BatchSize, Sizes
from ercr.explaining.together import run_all
from ercr.explanation import Explanation
from ercr.image.clips import LoadedClip
from ercr.image.gallery import Shown
from ercr.image.images import LoadedImage
from ercr.image.on_device import DevicePicture
from ercr.methods.base import Method, Settings
from ercr.models.base import Adapter
from ercr.models.chat import Message
from ercr.models.inputs import Picture
from ercr.trace import Needs, Trace, TraceRequest, trace_samples
from ercr.trace.flow import Flow, flows, packs
from ercr.trace.grad_mode import each_without_gradients, without_gradients
from ercr.trace.greedy import Generation
from ercr.trace.record import SampleRun, assemble
from ercr.words.calibration import Calibration, calibration_for, find_calibration
from ercr.zoo import locate, packaged

Chosen = tuple[Method, Settings]  # a method and its settings
Answer = str | Sequence[int]  # text, or token ids
# what is shown, its prompt, and its answer if it is given
Job = tuple[MediaLike, "str | Sequence[Message]", "Answer | None"]


@dataclass(frozen=True)
class Extras:
    """What an explanation holds beside the maps of the words that were said."""

    candidates: bool | Sequence[str] = False  # maps of the model's other candidates, and of these words
    grounding: Grounds | None = None  # whether each word was seen or guessed


_NOTHING = Extras()
_PINNED = 2**24  # bytes of a picture that waits in pinned memory; dozens wait, and there is not much of it


@dataclass(frozen=True)
class Opened:
    """What is asked, with the pictures and clips that belong to it."""

    wanted: Asked
    loaded: Shown
    turn: int | None
    waiting: Sequence[Picture] | None = None  # the same in memory from which a device copies it


class Runs:
    """Runs of one loaded model, which has a name and a revision."""

    def __init__(self, adapter: Adapter, name: str, revision: str | None) -> None:
        self.adapter, self.name, self.revision = adapter, name, revision

    @without_gradients
    def ready(
        self,
        image: MediaLike,
        prompt: str | Sequence[Message],
        answer: Answer | None,
        cells: bool = True,
        ahead: Sequence[Needs] = (),
        turn: int | None = None,
    ) -> Ready:
        """What is shown with its request; views that `ahead` needs are prepared now, others when the model is run."""
        if turn is not None and answer is not None:
            raise InputError("turn= explains an answer of the conversation: omit answer=.")
        return self.made(self.opened(image, prompt, turn), answer, cells, ahead)

    def opened(self, image: MediaLike, prompt: str | Sequence[Message], turn: int | None = None) -> Opened:
        """What is asked, with its pictures and clips read; nothing is prepared for the model."""
        wanted = asked(image, prompt, turn)
        return Opened(wanted, load(wanted.sources, self.adapter.sample_frames), turn)

    @without_gradients
    def made(self, given: Opened, answer: Answer | None, cells: bool = True, ahead: Sequence[Needs] = ()) -> Ready:
        """The request for what was opened; views that `ahead` needs are prepared now, others when the model is run."""
        wanted, loaded = given.wanted, given.loaded
        adapter = self.adapter.for_bulk if ahead else self.adapter
        host = media(loaded)
        shown = adapter.uploaded(host if given.waiting is None or not ahead else given.waiting)
        prepared = adapter.prepare(shown, wanted.messages, cells)
        refuse_long(prepared, getattr(adapter.config.get_text_config(), "max_position_embeddings", None))
        request = TraceRequest(host, prepared, self._answer(answer if given.turn is None else wanted.answer))
        if not ahead:
            return Ready(loaded, request, turns_of(wanted.messages))
        kinds = {(scale, need.kind) for need in ahead for scale in need.scales if scale != 1.0}
        views = {
            scale: ready_to_copy(adapter.view(shown, request.prepared, scale, kind), adapter)
            for scale, kind in sorted(kinds)
            if len({k for s, k in kinds if s == scale}) == 1
        }
        request = replace(request, prepared=ready_to_copy(request.prepared, adapter), views=views)
        return Ready(loaded, request, turns_of(wanted.messages))

    def ready_alone(
        self,
        image: MediaLike,
        prompt: str | Sequence[Message],
        answer: Answer | None,
        resolved: Sequence[Chosen],
        turn: int | None = None,
    ) -> Ready:
        """What is shown, to explain by itself; on a GPU, the device prepares it and its views."""
        on_gpu = self.adapter.device.type == "cuda"
        ahead = [method.needs(settings) for method, settings in resolved] if on_gpu else []
        return self.ready(image, prompt, answer, needs_cells(resolved), ahead, turn)

    def _answer(self, answer: Answer | None) -> Tensor | None:
        if answer is None:
            return None
        if isinstance(answer, list | tuple) and all(isinstance(token, int) for token in answer):
            return self.adapter.answer_ids(answer)
        if not isinstance(answer, str):
            raise InputError(f"An answer must be text or token ids, not {type(answer).__name__}.")
        if not answer.strip():
            raise InputError("The answer to explain is empty: give at least one word.")
        return self.adapter.encode_answer(answer)

    @without_gradients
    def explain(
        self, batch: Sequence[Ready], resolved: Sequence[Chosen], options: Generation, extras: Extras = _NOTHING
    ) -> list[list[Explanation]]:
        """Explain one batch by several methods: `[image][method]`. All methods explain the answer of the first run."""
        groups = _groups(resolved, extras)
        traces = trace_samples(self.adapter, [ready.request for ready in batch], groups[0][0], options)
        jobs = self._jobs(batch, traces, groups, resolved, options, extras)
        return self._described(jobs, len(batch), len(resolved))

    def _jobs(
        self,
        batch: Sequence[Ready],
        traces: Sequence[Trace],
        groups: Sequence[tuple[Needs, list[int]]],
        resolved: Sequence[Chosen],
        options: Generation,
        extras: Extras,
    ) -> dict[tuple[int, int], Explained]:
        """All methods on a batch, by sample and method; `traces` are those of the first group of needs."""
        others = self.candidates(extras.candidates, resolved)
        jobs: dict[tuple[int, int], Explained] = {}
        measured: list[Measured] | list[None] = [None] * len(batch)
        for needs, members in groups:
            if members == groups[0][1]:
                if extras.grounding is not None:
                    measured = self.measure(traces, [ready.request for ready in batch], extras.grounding)
            else:
                requests = [
                    replace(ready.request, answer=trace.ids[trace.input_length :])
                    for ready, trace in zip(batch, traces, strict=True)
                ]
                traces = trace_samples(self.adapter, requests, needs, options)
            for index in members:
                method, settings = resolved[index]
                found = run_all(method, settings, traces)
                for row, (trace, ready, parts) in enumerate(zip(traces, batch, found, strict=True)):
                    generated = options if ready.request.answer is None else None
                    instead = others(method, settings, trace)
                    jobs[row, index] = Explained(
                        *(ready.image, trace, method, settings, generated, *parts),
                        candidates=instead,
                        signals=measured[row],
                        prepared_on=ready.prepared_on,
                        conversation=ready.conversation,
                    )
        return jobs

    def _described(self, jobs: dict[tuple[int, int], Explained], rows: int, methods: int) -> list[list[Explanation]]:
        places = [(row, index) for row in range(rows) for index in range(methods)]
        made = iter(describe(self.adapter, self.name, self.revision, [jobs[place] for place in places]))
        return [[next(made) for _ in range(methods)] for _ in range(rows)]

    def measure(self, traces: Sequence[Trace], requests: Sequence[TraceRequest], grounds: Grounds) -> list[Measured]:
        """What tells seen words from guessed ones, for a batch of traces that kept states for it."""
        return measure(self.adapter, traces, requests, grounds, self.calibration(grounds.calibration))

    def calibration(self, wanted: Calibration | str | os.PathLike[str] | None) -> Calibration:
        """A calibration by name or from a file; by default this model's own, or the one for any model."""
        if isinstance(wanted, Calibration):
            return wanted
        return calibration_for(self._known_name) if wanted is None else find_calibration(wanted)

    @property
    def _known_name(self) -> str:
        """The name of a packaged model, also where it was loaded from its folder."""
        folder = Path(self.name)
        if folder.name in packaged() and Path(locate(folder.name)) == folder:
            return folder.name
        return self.name

    def candidates(
        self, wanted: bool | Sequence[str], resolved: Sequence[Chosen]
    ) -> Callable[[Method, Settings, Trace], Candidates | None]:
        """A function that makes the maps of candidates, or gives None where they are not wanted or not possible."""
        if wanted is False:
            return lambda method, settings, trace: None
        able = [can_compare(method, settings) for method, settings in resolved]
        if not isinstance(wanted, bool) and not any(able):
            raise InputError(
                f"Method {resolved[0][0].name!r} cannot make maps of words that were not said: use one that reads "
                f"visual states, such as ercr, tam or cam."
            )
        encode = self.adapter.tokenizer
        words = () if isinstance(wanted, bool) else tuple(wanted)
        tokens = wanted_tokens(words, lambda text: encode(text, add_special_tokens=False)["input_ids"])

        def make(method: Method, settings: Settings, trace: Trace) -> Candidates | None:
            if not can_compare(method, settings) or len(trace.rows) == trace.prompts:
                return None
            return compare(method, settings, trace, tokens)

        return make

    def in_batches(
        self,
        images: Sequence[MediaLike],
        prompts: str | Sequence[str | Sequence[Message]],
        answers: Sequence[Answer | None] | None,
        resolved: Sequence[Chosen],
        options: Generation,
        batch_size: BatchSize | Sizes,
        done: Callable[[int], None],
        extras: Extras = _NOTHING,
    ) -> list[list[Explanation]]:
        """Explain many images; they are prepared in background threads."""
        per_image = [prompts] * len(images) if isinstance(prompts, str) else list(prompts)
        given: list[Answer | None] = [None] * len(images) if answers is None else list(answers)
        if not len(images) == len(per_image) == len(given):
            raise InputError(f"Give {len(images)} prompts and answers for {len(images)} images, or one prompt for all.")
        found: dict[int, list[Explanation]] = {}
        jobs = zip(images, per_image, given, strict=True)
        for index, explanations in self.each(jobs, resolved, options, batch_size, extras):
            assert not isinstance(explanations, Lost)  # it would have been raised
            found[index] = explanations
            done(1)
        return [found[index] for index in range(len(images))]

    def each(
        self,
        jobs: Iterable[Job],
        resolved: Sequence[Chosen],
        options: Generation,
        batch_size: BatchSize | Sizes,
        extras: Extras = _NOTHING,
        keep: bool = False,
    ) -> Iterator[tuple[int, list[Explanation] | Lost]]:
        """Explanations [method] of many images with their numbers, as they come.

        An image that cannot be prepared is raised, or with `keep` among the results.
        """
        needs = [method.needs(settings) for method, settings in resolved]
        cells = needs_cells(resolved)

        prepare = Prepare(self, cells, needs)
        sizes = batch_size if isinstance(batch_size, Sizes) else Sizes(batch_size, self.adapter)
        first = _groups(resolved, extras)[0][0]
        found: Iterator[tuple[int, list[Explanation] | Lost]]
        if flows(self.adapter, first, options):
            found = in_flow(
                jobs,
                prepare,
                lambda rows: Flow(self.adapter, first, options, rows),
                lambda batch: self._finish(batch, resolved, options, extras),
                sizes,
                packs(self.adapter),
                keep,
            )
        else:
            found = in_batches(jobs, prepare, lambda batch: self.explain(batch, resolved, options, extras), sizes, keep)
        return each_without_gradients(few_collections(found))

    def _finish(
        self, batch: Sequence[tuple[Ready, SampleRun]], resolved: Sequence[Chosen], options: Generation, extras: Extras
    ) -> Callable[[], Wait[list[Explanation]]]:
        """How to start the methods on runs that have ended; what that returns waits for their results.

        On a GPU they run beside the passes over the next pictures, in a stream of their own.
        """
        groups = _groups(resolved, extras)
        alone = Beside(self.adapter.device, len(groups) == 1)

        def start() -> Wait[list[Explanation]]:
            with alone.stream():
                ready = [one for one, _ in batch]
                traces = assemble(self.adapter, [run for _, run in batch], groups[0][0])
                jobs = self._jobs(ready, traces, groups, resolved, options, extras)

            def results() -> list[list[Explanation]]:
                with alone.stream():
                    return self._described(jobs, len(ready), len(resolved))

            return results

        return start


class Prepare:
    """How the pictures of a bulk run become ready.

    Threads open pictures. If the CPU resizes them, threads do that, too; else they put them where the device can copy
    them from, and the rest is a few launches, for which the thread that runs the model need not fight with others over
    the interpreter.
    """

    def __init__(self, runs: Runs, cells: bool, needs: Sequence[Needs]) -> None:
        self._runs, self._cells, self._needs = runs, cells, needs
        self._on_device = runs.adapter.for_bulk.takes_device_pictures

    def load(self, job: Job) -> tuple[Opened, Answer | None] | Ready:
        image, prompt, answer = job
        opened = self._runs.opened(image, prompt)
        if self._on_device:
            opened = replace(opened, waiting=[self._waiting(item) for item in opened.loaded.items])
        opened.loaded.sha256()  # cached here, so that it is not computed while the device waits
        return (opened, answer) if self._on_device else self._runs.made(opened, answer, self._cells, self._needs)

    def _waiting(self, item: LoadedImage | LoadedClip) -> Picture:
        """A picture in memory from which the device can copy it; its hash is made of the same copy."""
        if isinstance(item, LoadedClip):
            return item
        pixels = np.array(item.rgb)
        item.sha256(pixels)
        small = pixels.nbytes <= _PINNED
        return DevicePicture.waiting(pixels, self._runs.adapter.device) if small else item.rgb

    def finish(self, loaded: tuple[Opened, Answer | None] | Ready) -> Ready:
        return loaded if isinstance(loaded, Ready) else self._runs.made(*loaded, self._cells, self._needs)


def as_job(item: Any, prompt: str | Sequence[Message]) -> Job:
    """An image with its prompt and answer, from what a user may give for it; the prompt is used if it has none."""
    if isinstance(item, tuple):
        if not 1 <= len(item) <= 3:
            raise InputError(f"Give an image, (image, prompt) or (image, prompt, answer), not {len(item)} values.")
        image, own, answer = (*item, None, None)[:3]
    elif isinstance(item, dict):
        unknown = sorted(set(item) - {"image", "prompt", "answer"})
        if unknown or "image" not in item:
            raise InputError("An item must be a dict with 'image' and perhaps 'prompt' and 'answer'.")
        image, own, answer = item["image"], item.get("prompt"), item.get("answer")
    else:
        image, own, answer = item, None, None
    return image, prompt if own is None else own, answer


class Beside:
    """A stream of the device beside the one that reads pictures, or nothing of the kind where it is not `wanted`.

    It waits for what was started before it was made, and for nothing that is started later.
    """

    def __init__(self, device: torch.device, wanted: bool) -> None:
        self._stream = torch.cuda.Stream(device) if wanted and device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def stream(self) -> AbstractContextManager[object]:
        """Everything inside runs in that stream; what it reads must stay alive until its results have been copied."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


def needs_cells(resolved: Sequence[Chosen]) -> bool:
    """Whether any of the methods reads visual tokens with a place on the picture."""
    return any(method.needs(settings).cells for method, settings in resolved)


def _groups(resolved: Sequence[Chosen], extras: Extras) -> list[tuple[Needs, list[int]]]:
    """The runs that serve all methods, each with their numbers; the first keeps what grounding needs."""
    (first, members), *rest = _shared([method.needs(settings) for method, settings in resolved])
    depths = None if extras.grounding is None else tuple(extras.grounding.depths)
    return [(replace(first, lens=depths), members), *rest]


def _shared(needs: Sequence[Needs]) -> list[tuple[Needs, list[int]]]:
    """Group needs so that one run of the model serves each group."""
    groups: list[tuple[Needs, list[int]]] = []
    for index, need in enumerate(needs):
        for at, (shared, members) in enumerate(groups):
            both = shared.together(need)
            if both is not None:
                groups[at] = (both, [*members, index])
                break
        else:
            groups.append((need, [index]))
    return groups
