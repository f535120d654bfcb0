"""The `Explainer`, the main class of the library: from an image and a prompt to an explanation."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Literal

import numpy as np

from ercr.errors import InputError, choose
from ercr.explaining.bulk import Lost, ordered
from ercr.explaining.decoding import decoding
from ercr.explaining.describe import Explained, describe
from ercr.explaining.grounding import Grounds, as_grounds
from ercr.explaining.media import MediaLike
from ercr.explaining.runs import Answer, Extras, Runs, as_job
from ercr.explaining.sizes import BatchSize, Sizes
from ercr.explaining.streaming import Stream
from ercr.explanation import Explanation
from ercr.image.geometry import Floats
from ercr.methods.base import Evidence, Result
from ercr.methods.registry import resolve
from ercr.models.base import Adapter
from ercr.models.chat import Message
from ercr.models.loading import load_adapter, wrap_model
from ercr.progress import bar
from ercr.trace import Needs, Trace, trace_samples
from ercr.trace.attention import register as register_attention
from ercr.trace.grad_mode import without_gradients
from ercr.trace.greedy import Generation
from ercr.trace.without_picture import TEXT
from ercr.zoo.defaults import PROMPT as DEFAULT_PROMPT
from ercr.zoo.defaults import default_model


class Explainer:
    """A loaded multimodal model that can show which part of an image it used for each word."""

    def __init__(
        self,
        model: Any,
        processor: Any = None,
        *,
        name: str | None = None,
        revision: str | None = None,
        compile: bool = False,
        generic: bool = False,
    ) -> None:
        """Wrap a loaded Hugging Face model, with its processor or a pair (tokenizer, image_processor).

        Without a processor, both are loaded from the model's checkpoint. `compile` captures passes as CUDA graphs over
        a cache of fixed size, which is faster from the second image of a shape on. `generic` uses the adapter that
        asks the processor and the model, also for a family with an adapter of its own.
        """
        known = name or str(getattr(model, "name_or_path", ""))
        self._setup(wrap_model(model, processor, generic), known, revision, compile)

    def _setup(self, adapter: Adapter, name: str, revision: str | None, compile: bool) -> None:
        self.adapter = adapter
        register_attention()
        if compile:
            from ercr.trace.compiled import Compiled

            adapter.compiled = Compiled(adapter)
        self.name = name or type(adapter.model).__name__
        self.revision = revision or getattr(adapter.config, "_commit_hash", None)
        self.runs = Runs(adapter, self.name, self.revision)

    @classmethod
    def from_pretrained(
        cls,
        name: str | None = None,
        *,
        revision: str | None = None,
        dtype: Any = None,
        compile: bool = False,
        generic: bool = False,
        **options: Any,
    ) -> Explainer:
        """Load a checkpoint by hub id or folder, or a packaged model by its name.

        Without a name: `photo-mini`, for photographs, if its language model is installed or cached; otherwise, with a
        warning, the model for drawn scenes. The dtype is the checkpoint's own unless `dtype` is given; packaged models
        run in float32.
        """
        from ercr.zoo import locate, packaged

        explainer = cls.__new__(cls)
        chosen = name or _default_name()
        dtype = dtype or ("float32" if chosen in packaged() else "auto")
        adapter = load_adapter(locate(chosen), revision, generic, dtype=dtype, **options)
        explainer._setup(adapter, chosen, revision, compile)
        return explainer

    @classmethod
    def around(cls, adapter: Adapter, name: str) -> Explainer:
        """An explainer with an existing adapter."""
        explainer = cls.__new__(cls)
        explainer._setup(adapter, name, None, False)
        return explainer

    def explain(
        self,
        image: MediaLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        answer: Answer | None = None,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        candidates: bool | Sequence[str] = False,
        grounding: bool | str | Grounds = False,
        turn: int | None = None,
        **switches: Any,
    ) -> Explanation:
        """Explain the answer that the model generates for an image, or a given `answer`: text, or token ids.

        `image` may be a list of pictures and clips (`ercr.Clip`, or the name of a video file), in the order of their
        places in the prompt. A conversation (chat messages) is given as `prompt`, or alone, with its pictures inside;
        with `turn`, the words of that answer of the assistant are explained, counted from 0 or from the end.
        `method` is a name; its settings are given in the call (`context="tam"`) or after a colon
        (`"ercr:context=tam"`). `generation` has options of the model's `generate`; by default decoding is greedy.
        `candidates` adds maps of what the model could have said instead, and of words that are given. `grounding` adds
        to every word whether it was seen or guessed (`Word.grounding`), by the model's own calibration or a named one.
        """
        options = decoding(max_new_tokens, generation)
        chosen, extras = resolve(method, **switches), Extras(candidates, as_grounds(grounding))
        ready = self.runs.ready_alone(image, prompt, answer, [chosen], turn)
        return self.runs.explain([ready], [chosen], options, extras)[0][0]

    def check(
        self,
        image: MediaLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        answer: Answer | None = None,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        calibration: str | None = None,
        without: Sequence[str] = (TEXT,),
        depths: Sequence[float] = (),
        turn: int | None = None,
        **switches: Any,
    ) -> Explanation:
        """Whether each word of an answer, the model's own or a given one, was seen in the image or guessed.

        The explanation's words have `grounding`. `without` names what stands instead of the image when the words are
        read without it: nothing (`text`), which is weighed, or also `grey`, `black`, `noise`. `depths` are further
        layers that the lens reads, as shares (0..1) of the decoder's depth. `calibration` is the name of one, or a JSON
        file; by default the packaged model's own, and `general` for other models.
        """
        grounds = Grounds(tuple(without), tuple(depths), calibration)
        options = {
            "max_new_tokens": max_new_tokens,
            "generation": generation,
            "grounding": grounds,
            "turn": turn,
            **switches,
        }
        return self.explain(image, prompt, answer=answer, method=method, **options)

    def explain_all(
        self,
        image: MediaLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        methods: Sequence[str],
        answer: Answer | None = None,
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        candidates: bool | Sequence[str] = False,
        grounding: bool | str | Grounds = False,
        turn: int | None = None,
    ) -> list[Explanation]:
        """Explain one answer by several methods, with as few runs of the model as possible."""
        resolved = [resolve(method) for method in methods]
        options = decoding(max_new_tokens, generation)
        ready = self.runs.ready_alone(image, prompt, answer, resolved, turn)
        return self.runs.explain([ready], resolved, options, Extras(candidates, as_grounds(grounding)))[0]

    def explain_many(
        self,
        images: Sequence[MediaLike],
        prompts: str | Sequence[str | Sequence[Message]] = DEFAULT_PROMPT,
        *,
        methods: Sequence[str],
        answers: Sequence[Answer] | None = None,
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        batch_size: BatchSize | Sizes = "auto",
        done: Callable[[int], None] = lambda count: None,
        grounding: bool | str | Grounds = False,
    ) -> list[list[Explanation]]:
        """Explain many images by several methods, with as few runs of the model as possible: `[image][method]`.

        `done` is called after every batch with its number of images.
        """
        resolved, options = [resolve(method) for method in methods], decoding(max_new_tokens, generation)
        extras = Extras(grounding=as_grounds(grounding))
        return self.runs.in_batches(images, prompts, answers, resolved, options, batch_size, done, extras)

    @without_gradients
    def answer_log_probabilities(
        self,
        images: Iterable[MediaLike],
        prompt: str | Sequence[Message],
        answer: Answer,
        batch_size: int | Sizes = 32,
    ) -> Floats:
        """The log-probability of every token of a given answer (text or token ids) for each image [images, tokens].

        Images are read one batch at a time. A batch that needs too much memory is halved.
        """

        def run(batch: Sequence[MediaLike]) -> list[Floats]:
            requests = [self.runs.ready(image, prompt, answer, cells=False).request for image in batch]
            traces = trace_samples(self.adapter, requests, Needs(top=1, cells=False), {})
            for trace in traces:
                trace.check()
            return [trace.text.log_probabilities[trace.prompts :].float().cpu().numpy() for trace in traces]

        sizes = batch_size if isinstance(batch_size, Sizes) else Sizes(batch_size, self.adapter)
        rows: list[Floats] = []
        coming = iter(images)
        while batch := list(islice(coming, sizes.size)):
            rows += sizes.run(run, batch)
        return np.stack(rows)

    def explain_batch(
        self,
        images: Sequence[MediaLike],
        prompts: str | Sequence[str | Sequence[Message]] = DEFAULT_PROMPT,
        *,
        answers: Sequence[Answer] | None = None,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        batch_size: BatchSize = "auto",
        progress: bool = True,
        grounding: bool | str | Grounds = False,
        **switches: Any,
    ) -> list[Explanation]:
        """Explain many images, with one prompt for all or one for each. Results keep the given order.

        In a terminal, standard error shows a progress bar unless `progress` is off.
        """
        resolved, options = [resolve(method, **switches)], decoding(max_new_tokens, generation)
        extras = Extras(grounding=as_grounds(grounding))
        with bar(len(images), shown=progress) as done:
            found = self.runs.in_batches(images, prompts, answers, resolved, options, batch_size, done, extras)
        return [row[0] for row in found]

    def explain_iter(
        self,
        items: Iterable[Any],
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        batch_size: BatchSize | Sizes = "auto",
        errors: Literal["raise", "keep"] = "raise",
        grounding: bool | str | Grounds = False,
        progress: bool = True,
        **switches: Any,
    ) -> Iterator[Explanation | Exception]:
        """Iterate over the explanations of any number of images, in their order, with bounded memory.

        `items` are images, pairs (image, prompt), triples (image, prompt, answer), or dicts with these names; they are
        read a little ahead of the model. With `errors="keep"`, an image that cannot be read comes as its exception.
        """
        choose("errors", errors, "raise", "keep")
        if isinstance(items, str | bytes | os.PathLike) or not isinstance(items, Iterable):
            raise InputError(f"explain_iter takes a list of images, not {type(items).__name__}: use explain for one.")
        resolved, options = [resolve(method, **switches)], decoding(max_new_tokens, generation)
        jobs = (as_job(item, prompt) for item in items)
        extras = Extras(grounding=as_grounds(grounding))
        found = self.runs.each(jobs, resolved, options, batch_size, extras, errors == "keep")
        total = len(items) if isinstance(items, Sized) else None
        return _shown(ordered(found), total, progress)

    @without_gradients
    def stream(
        self,
        image: MediaLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        candidates: bool | Sequence[str] = False,
        grounding: bool | str | Grounds = False,
        **switches: Any,
    ) -> Stream:
        """Iterate over tokens and their maps as they are generated; then `.explanation()` returns the explanation.

        `candidates` and `grounding` are as in `explain`: the explanation has them, and the steps do not.
        """
        chosen, settings = resolve(method, **switches)
        if not chosen.streams(settings):
            raise InputError(f"Method {chosen.name!r} with these settings needs the whole answer and cannot stream.")
        ready = self.runs.ready(image, prompt, None)
        options = decoding(max_new_tokens, generation)
        if options["num_beams"] != 1:
            raise InputError("Beam search cannot stream: omit num_beams, or use explain().")

        grounds = as_grounds(grounding)
        instead = self.runs.candidates(candidates, [(chosen, settings)])

        def finish(trace: Trace, evidence: Evidence, result: Result) -> Explanation:
            measured = None if grounds is None else self.runs.measure([trace], [ready.request], grounds)[0]
            others = instead(chosen, settings, trace)
            parts = (trace, chosen, settings, options, evidence, result, others, measured)
            job = Explained(ready.image, *parts, conversation=ready.conversation)
            return describe(self.adapter, self.name, self.revision, [job])[0]

        lens = None if grounds is None else tuple(grounds.depths)
        return Stream(self.adapter, ready.request, chosen, settings, options, finish, lens)


def _shown(
    results: Iterator[list[Explanation] | Lost], total: int | None, progress: bool
) -> Iterator[Explanation | Exception]:
    """The only explanation of each image, or why there is none, while a bar shows how many there are."""
    with bar(total, shown=progress) as done:
        for result in results:
            done(1)
            yield result.error if isinstance(result, Lost) else result[0]


def _default_name() -> str:
    default = default_model()
    if default.advice:
        warnings.warn(default.sentence, stacklevel=3)
    return default.name
