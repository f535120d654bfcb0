"""The `Explainer`, the main class of the library: from an image and a prompt to an explanation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from numbers import Integral
from typing import Any

import numpy as np
from torch import Tensor

from ercr.errors import InputError, nearest
from ercr.explaining.bulk import BatchSize, Ready, Sizes, in_batches, ready_to_copy
from ercr.explaining.describe import Explained, describe
from ercr.explaining.streaming import Stream
from ercr.explaining.together import run_all
from ercr.explanation import Explanation
from ercr.image.geometry import Floats
from ercr.image.images import ImageLike, load_image
from ercr.methods.base import Evidence, Method, Result, Settings
from ercr.methods.registry import resolve
from ercr.models.base import Adapter
from ercr.models.chat import Message, as_messages
from ercr.models.loading import load_adapter, wrap_model
from ercr.progress import bar
from ercr.trace import Needs, Trace, TraceRequest, trace_samples
from ercr.trace.attention import register as register_attention
from ercr.trace.grad_mode import without_gradients
from ercr.trace.greedy import Generation
from ercr.zoo.defaults import PROMPT as DEFAULT_PROMPT
from ercr.zoo.defaults import default_model

Chosen = tuple[Method, Settings]  # a method and its settings
Answer = str | Sequence[int]  # text, or token ids


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
    ) -> None:
        """Wrap a loaded Hugging Face model, with its processor or a pair (tokenizer, image_processor).

        Without a processor, both are loaded from the model's checkpoint. `compile` captures passes as CUDA graphs over
        a cache of fixed size, which is faster from the second image of a shape on.
        """
        known = name or str(getattr(model, "name_or_path", ""))
        self._setup(wrap_model(model, processor), known, revision, compile)

    def _setup(self, adapter: Adapter, name: str, revision: str | None, compile: bool) -> None:
        self.adapter = adapter
        register_attention()
        if compile:
            from ercr.trace.compiled import Compiled

            adapter.compiled = Compiled(adapter)
        self.name = name or type(adapter.model).__name__
        self.revision = revision or getattr(adapter.config, "_commit_hash", None)

    @classmethod
    def from_pretrained(
        cls,
        name: str | None = None,
        *,
        revision: str | None = None,
        dtype: Any = None,
        compile: bool = False,
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
        adapter = load_adapter(locate(chosen), revision, dtype=dtype, **options)
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
        image: ImageLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        answer: Answer | None = None,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        **switches: Any,
    ) -> Explanation:
        """Explain the answer that the model generates for an image, or a given `answer`: text, or token ids.

        `method` is a name; its settings are given in the call (`context="tam"`) or after a colon
        (`"ercr:context=tam"`). `generation` has options of the model's `generate`; by default decoding is greedy.
        """
        options = self._generation(max_new_tokens, generation)
        return self._explain([self._ready(image, prompt, answer)], [resolve(method, **switches)], options)[0][0]

    def explain_all(
        self,
        image: ImageLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        methods: Sequence[str],
        answer: Answer | None = None,
        max_new_tokens: int = 256,
        generation: Generation | None = None,
    ) -> list[Explanation]:
        """Explain one answer by several methods, with as few runs of the model as possible."""
        resolved = [resolve(method) for method in methods]
        options = self._generation(max_new_tokens, generation)
        return self._explain([self._ready(image, prompt, answer)], resolved, options)[0]

    def explain_many(
        self,
        images: Sequence[ImageLike],
        prompts: str | Sequence[str | Sequence[Message]] = DEFAULT_PROMPT,
        *,
        methods: Sequence[str],
        answers: Sequence[Answer] | None = None,
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        batch_size: BatchSize | Sizes = "auto",
        done: Callable[[int], None] = lambda count: None,
    ) -> list[list[Explanation]]:
        """Explain many images by several methods, with as few runs of the model as possible: `[image][method]`.

        `done` is called after every batch with its number of images.
        """
        resolved = [resolve(method) for method in methods]
        return self._in_batches(images, prompts, answers, resolved, max_new_tokens, generation, batch_size, done)

    @without_gradients
    def answer_log_probabilities(
        self,
        images: Iterable[ImageLike],
        prompt: str | Sequence[Message],
        answer: Answer,
        batch_size: int | Sizes = 32,
    ) -> Floats:
        """The log-probability of every token of a given answer (text or token ids) for each image [images, tokens].

        Images are read one batch at a time. A batch that needs too much memory is halved.
        """

        def run(batch: Sequence[ImageLike]) -> list[Floats]:
            requests = [self._ready(image, prompt, answer).request for image in batch]
            traces = trace_samples(self.adapter, requests, Needs(top=1), {})
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
        images: Sequence[ImageLike],
        prompts: str | Sequence[str | Sequence[Message]] = DEFAULT_PROMPT,
        *,
        answers: Sequence[Answer] | None = None,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        batch_size: BatchSize = "auto",
        progress: bool = True,
        **switches: Any,
    ) -> list[Explanation]:
        """Explain many images, with one prompt for all or one for each. Results keep the given order.

        In a terminal, standard error shows a progress bar unless `progress` is off.
        """
        resolved = [resolve(method, **switches)]
        with bar(len(images), shown=progress) as done:
            found = self._in_batches(images, prompts, answers, resolved, max_new_tokens, generation, batch_size, done)
        return [row[0] for row in found]

    @without_gradients
    def _in_batches(
        self,
        images: Sequence[ImageLike],
        prompts: str | Sequence[str | Sequence[Message]],
        answers: Sequence[Answer] | None,
        resolved: Sequence[Chosen],
        max_new_tokens: int,
        generation: Generation | None,
        batch_size: BatchSize | Sizes,
        done: Callable[[int], None],
    ) -> list[list[Explanation]]:
        per_image = [prompts] * len(images) if isinstance(prompts, str) else list(prompts)
        given: list[Answer | None] = [None] * len(images) if answers is None else list(answers)
        if answers is not None and None in given:
            raise InputError("Give an answer for every image, or omit answers.")
        if not len(images) == len(per_image) == len(given):
            raise InputError(f"Give {len(images)} prompts and answers for {len(images)} images, or one prompt for all.")
        options = self._generation(max_new_tokens, generation)
        needs = [method.needs(settings) for method, settings in resolved]

        def prepare(index: int) -> Ready:
            return self._ready(images[index], per_image[index], given[index], needs)

        def run(batch: Sequence[Ready]) -> list[list[Explanation]]:
            return self._explain(batch, resolved, options)

        sizes = batch_size if isinstance(batch_size, Sizes) else Sizes(batch_size, self.adapter)
        return in_batches(range(len(images)), prepare, run, sizes, done)

    @without_gradients
    def _explain(
        self, batch: Sequence[Ready], resolved: Sequence[Chosen], options: Generation
    ) -> list[list[Explanation]]:
        """Explain one batch by several methods: `[image][method]`. All methods explain the answer of the first run."""
        jobs: dict[tuple[int, int], Explained] = {}
        requests = [ready.request for ready in batch]
        for needs, members in _shared([method.needs(settings) for method, settings in resolved]):
            traces = trace_samples(self.adapter, requests, needs, options)
            requests = [
                replace(request, answer=trace.ids[trace.input_length :])
                for request, trace in zip(requests, traces, strict=True)
            ]
            for index in members:
                method, settings = resolved[index]
                found = run_all(method, settings, traces)
                for row, (trace, ready, parts) in enumerate(zip(traces, batch, found, strict=True)):
                    generated = options if ready.request.answer is None else None
                    jobs[row, index] = Explained(ready.image, trace, method, settings, generated, *parts)
        places = [(row, index) for row in range(len(batch)) for index in range(len(resolved))]
        made = iter(describe(self.adapter, self.name, self.revision, [jobs[place] for place in places]))
        return [[next(made) for _ in resolved] for _ in batch]

    @without_gradients
    def stream(
        self,
        image: ImageLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: Generation | None = None,
        **switches: Any,
    ) -> Stream:
        """Iterate over tokens and their maps as they are generated; then `.explanation()` returns the explanation."""
        chosen, settings = resolve(method, **switches)
        if not chosen.streams(settings):
            raise InputError(f"Method {chosen.name!r} with these settings needs the whole answer and cannot stream.")
        ready = self._ready(image, prompt, None)
        options = self._generation(max_new_tokens, generation)
        if options["num_beams"] != 1:
            raise InputError("Beam search cannot stream: omit num_beams, or use explain().")

        def finish(trace: Trace, evidence: Evidence, result: Result) -> Explanation:
            job = Explained(ready.image, trace, chosen, settings, options, evidence, result)
            return describe(self.adapter, self.name, self.revision, [job])[0]

        return Stream(self.adapter, ready.request, chosen, settings, options, finish)

    @without_gradients
    def _ready(
        self,
        image: ImageLike,
        prompt: str | Sequence[Message],
        answer: Answer | None,
        ahead: Sequence[Needs] = (),
    ) -> Ready:
        """An image with its request; views that `ahead` needs are prepared now, the others when the model is run."""
        loaded = load_image(image)
        adapter = self.adapter.for_bulk if ahead else self.adapter
        request = TraceRequest(loaded.rgb, adapter.prepare(loaded.rgb, as_messages(prompt)), self._answer(answer))
        if not ahead:
            return Ready(loaded, request)
        loaded.sha256()  # cached here, so that it is not computed while the device waits
        kinds = {(scale, need.kind) for need in ahead for scale in need.scales if scale != 1.0}
        views = {
            scale: ready_to_copy(adapter.view(loaded.rgb, request.prepared, scale, kind), adapter)
            for scale, kind in sorted(kinds)
            if len({k for s, k in kinds if s == scale}) == 1
        }
        return Ready(loaded, replace(request, prepared=ready_to_copy(request.prepared, adapter), views=views))

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

    def _generation(self, max_new_tokens: int, generation: Generation | None) -> Generation:
        if generation is not None and not isinstance(generation, dict):
            raise InputError(f"generation must be a dict such as {{'num_beams': 3}}, not {type(generation).__name__}.")
        given = {key: value for key, value in (generation or {}).items() if value is not None}
        _check_generation(given)
        options: Generation = {"max_new_tokens": max_new_tokens, "do_sample": False, "num_beams": 1, **given}
        longest = options["max_new_tokens"]
        if not isinstance(longest, Integral) or longest < 1:
            raise InputError(f"max_new_tokens must be a whole number of at least 1, not {longest!r}.")
        if options.get("num_return_sequences", 1) != 1:
            raise InputError("Only one answer can be explained: omit num_return_sequences.")
        if not options["do_sample"]:
            # otherwise generate warns that greedy decoding ignores the checkpoint's sampling settings
            options = {"temperature": None, "top_p": None, "top_k": None, **options}
        return options


def _check_generation(given: dict[str, Any]) -> None:
    """Refuse options that `generate` does not have."""
    from transformers import GenerationConfig

    # arguments of generate itself, which are not in its settings
    arguments = (
        "logits_processor",
        "stopping_criteria",
        "prefix_allowed_tokens_fn",
        "assistant_model",
        "use_model_defaults",
    )
    known = [name for name in vars(GenerationConfig()) if not name.startswith("_")]
    if "stop_strings" in given:
        raise InputError("stop_strings is not supported: use eos_token_id or max_new_tokens.")
    for name in given:
        if name not in known and name not in arguments:
            raise InputError(f"The model's generate has no setting {name!r}: remove it.{nearest(str(name), known)}")


def _default_name() -> str:
    default = default_model()
    if default.advice:
        warnings.warn(default.sentence, stacklevel=3)
    return default.name


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
