"""The front door of the library: an image and a prompt in, an explanation out."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ercr.errors import InputError
from ercr.explanation import Candidate, Explanation, Token
from ercr.images import ImageLike, LoadedImage, load_image
from ercr.methods.base import Evidence, Method, Result
from ercr.methods.registry import resolve
from ercr.models.base import Adapter
from ercr.models.chat import Message, as_messages
from ercr.models.loading import load_adapter, wrap_model
from ercr.streaming import Stream
from ercr.trace import Needs, Sample, Trace, trace_samples
from ercr.version import __version__
from ercr.words import pieces

DEFAULT_PROMPT = "Describe this image."
_CANDIDATES = 5


class Explainer:
    """A loaded multimodal model that can say which part of an image each of its words rests on."""

    def __init__(
        self, model: Any, processor: Any = None, *, name: str | None = None, revision: str | None = None
    ) -> None:
        """Wrap a loaded Hugging Face model, with its processor or a pair (tokenizer, image_processor).

        Without a processor, both are read from the checkpoint that the model came from.
        """
        self._setup(wrap_model(model, processor), name or str(getattr(model, "name_or_path", "")), revision)

    def _setup(self, adapter: Adapter, name: str, revision: str | None) -> None:
        self.adapter = adapter
        self.name = name or type(adapter.model).__name__
        self.revision = revision or getattr(adapter.config, "_commit_hash", None)

    @classmethod
    def from_pretrained(
        cls, name: str | None = None, *, revision: str | None = None, dtype: Any = None, **options: Any
    ) -> Explainer:
        """Load a checkpoint by hub id or folder, or a packaged model by its name; without a name, the default one.

        Precision is the checkpoint's own unless `dtype` says otherwise; packaged models run in float32.
        """
        from ercr.zoo import DEFAULT, locate, packaged

        explainer = cls.__new__(cls)
        chosen = name or DEFAULT
        dtype = dtype or ("float32" if chosen in packaged() else "auto")
        explainer._setup(load_adapter(locate(chosen), revision, dtype=dtype, **options), chosen, revision)
        return explainer

    def explain(
        self,
        image: ImageLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        answer: str | None = None,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: dict[str, Any] | None = None,
        **switches: Any,
    ) -> Explanation:
        """Explain what the model says about an image, or a given `answer`.

        `method` is a name, with switches in the call (`context="tam"`) or behind a colon (`"ercr:context=tam"`).
        `generation` goes to the model's `generate`; decoding is greedy unless it says otherwise.
        """
        options = self._generation(max_new_tokens, generation)
        return self._explain([load_image(image)], [prompt], [answer], [resolve(method, **switches)], options)[0][0]

    def explain_all(
        self,
        image: ImageLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        methods: Sequence[str],
        answer: str | None = None,
        max_new_tokens: int = 256,
        generation: dict[str, Any] | None = None,
    ) -> list[Explanation]:
        """Explain one answer by several methods; methods that can share a run of the model do."""
        resolved = [resolve(method) for method in methods]
        options = self._generation(max_new_tokens, generation)
        return self._explain([load_image(image)], [prompt], [answer], resolved, options)[0]

    def explain_many(
        self,
        images: Sequence[ImageLike],
        prompts: str | Sequence[str | Sequence[Message]] = DEFAULT_PROMPT,
        *,
        methods: Sequence[str],
        answers: Sequence[str] | None = None,
        max_new_tokens: int = 256,
        generation: dict[str, Any] | None = None,
        batch_size: int = 8,
    ) -> list[list[Explanation]]:
        """Explain many images by several methods, which share runs of the model where they can: [image][method]."""
        resolved = [resolve(method) for method in methods]
        return self._in_batches(images, prompts, answers, resolved, max_new_tokens, generation, batch_size)

    @torch.no_grad()
    def answer_log_probabilities(
        self,
        images: Sequence[ImageLike],
        prompt: str | Sequence[Message],
        answer: str | Sequence[int],
        batch_size: int = 32,
    ) -> Any:
        """log P of every token of a fixed answer, given as text or token ids, under each image [images, tokens]."""
        rows = []
        for start in range(0, len(images), batch_size):
            loaded = [load_image(image) for image in images[start : start + batch_size]]
            samples = [self._sample(image, prompt, answer) for image in loaded]
            traces = trace_samples(self.adapter, samples, Needs(top=1), {})
            rows += [trace.text.log_probabilities[trace.prompts :].float().cpu().numpy() for trace in traces]
        return np.stack(rows)

    def explain_batch(
        self,
        images: Sequence[ImageLike],
        prompts: str | Sequence[str | Sequence[Message]] = DEFAULT_PROMPT,
        *,
        answers: Sequence[str] | None = None,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: dict[str, Any] | None = None,
        batch_size: int = 8,
        **switches: Any,
    ) -> list[Explanation]:
        """Explain many images; one prompt for all or one each. Results come in the order given."""
        resolved = [resolve(method, **switches)]
        found = self._in_batches(images, prompts, answers, resolved, max_new_tokens, generation, batch_size)
        return [row[0] for row in found]

    def _in_batches(
        self,
        images: Sequence[ImageLike],
        prompts: str | Sequence[str | Sequence[Message]],
        answers: Sequence[str] | None,
        resolved: Sequence[tuple[Method, Any]],
        max_new_tokens: int,
        generation: dict[str, Any] | None,
        batch_size: int,
    ) -> list[list[Explanation]]:
        per_image = [prompts] * len(images) if isinstance(prompts, str) else list(prompts)
        given: list[str | None] = [None] * len(images) if answers is None else list(answers)
        if answers is not None and None in given:
            raise InputError("Give an answer for every image, or none at all.")
        if not len(images) == len(per_image) == len(given):
            raise InputError(f"{len(images)} images need as many prompts and answers, or one prompt for all.")
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {batch_size}.")
        options = self._generation(max_new_tokens, generation)
        results: list[list[Explanation]] = []
        for start in range(0, len(images), batch_size):
            part = slice(start, start + batch_size)
            loaded = [load_image(image) for image in images[part]]
            results += self._explain(loaded, per_image[part], given[part], resolved, options)
        return results

    def _explain(
        self,
        images: Sequence[LoadedImage],
        prompts: Sequence[str | Sequence[Message]],
        answers: Sequence[str | None],
        resolved: Sequence[tuple[Method, Any]],
        options: dict[str, Any],
    ) -> list[list[Explanation]]:
        """One batch by several methods; all methods explain the answer of the first run."""
        rows = zip(images, prompts, answers, strict=True)
        samples = [self._sample(image, prompt, answer) for image, prompt, answer in rows]
        spoken = [options if answer is None else None for answer in answers]
        results: list[list[Any]] = [[None] * len(resolved) for _ in images]
        for needs, members in _shared([method.needs(settings) for method, settings in resolved]):
            traces = trace_samples(self.adapter, samples, needs, options)
            samples = [
                replace(sample, answer=trace.ids[trace.input_length :])
                for sample, trace in zip(samples, traces, strict=True)
            ]
            for row, trace in enumerate(traces):
                for index in members:
                    results[row][index] = self._explanation(images[row], trace, *resolved[index], spoken[row])
        return results

    def stream(
        self,
        image: ImageLike,
        prompt: str | Sequence[Message] = DEFAULT_PROMPT,
        *,
        method: str = "ercr",
        max_new_tokens: int = 256,
        generation: dict[str, Any] | None = None,
        **switches: Any,
    ) -> Stream:
        """Iterate over tokens and their maps as they are spoken; afterwards `.explanation()` gives the whole."""
        chosen, settings = resolve(method, **switches)
        if not chosen.streams(settings):
            raise InputError(f"Method {chosen.name!r} with these settings needs the whole answer and cannot stream.")
        loaded = load_image(image)
        sample = self._sample(loaded, prompt, None)
        options = self._generation(max_new_tokens, generation)
        if options["num_beams"] != 1:
            raise InputError("Beam search cannot stream: leave num_beams at 1, or use explain().")

        def finish(trace: Trace, evidence: Evidence, result: Result) -> Explanation:
            return self._finished(loaded, trace, chosen, settings, options, evidence, result)

        return Stream(self.adapter, sample, chosen, settings, options, finish)

    def _sample(
        self, image: LoadedImage, prompt: str | Sequence[Message], answer: str | Sequence[int] | None
    ) -> Sample:
        prepared = self.adapter.prepare(image.rgb, as_messages(prompt))
        if answer is None:
            return Sample(image.rgb, prepared)
        if isinstance(answer, list | tuple) and all(isinstance(token, int) for token in answer):
            return Sample(image.rgb, prepared, torch.tensor(answer, dtype=torch.long))
        if not isinstance(answer, str):
            raise InputError(f"An answer must be text, not {type(answer).__name__}.")
        if not answer.strip():
            raise InputError("The answer to explain is empty: give at least one word.")
        return Sample(image.rgb, prepared, self.adapter.encode_answer(answer))

    def _generation(self, max_new_tokens: int, generation: dict[str, Any] | None) -> dict[str, Any]:
        if max_new_tokens < 1:
            raise InputError(f"max_new_tokens must be at least 1, not {max_new_tokens}.")
        given = {key: value for key, value in (generation or {}).items() if value is not None}
        options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "do_sample": False, "num_beams": 1, **given}
        if options.get("num_return_sequences", 1) != 1:
            raise InputError("One answer is explained at a time: leave num_return_sequences at 1.")
        if not options["do_sample"]:
            # a checkpoint's sampling settings would only make generate warn that greedy decoding ignores them
            options = {"temperature": None, "top_p": None, "top_k": None, **options}
        return options

    def _explanation(
        self, image: LoadedImage, trace: Trace, method: Method, settings: Any, options: dict[str, Any] | None
    ) -> Explanation:
        rows = slice(0, len(trace.rows))
        with torch.no_grad():
            evidence = method.evidence(trace, rows, settings)
            result = method.refine(trace, evidence.maps, rows, settings)
        return self._finished(image, trace, method, settings, options, evidence, result)

    def _finished(
        self,
        image: LoadedImage,
        trace: Trace,
        method: Method,
        settings: Any,
        options: dict[str, Any] | None,
        evidence: Evidence,
        result: Result,
    ) -> Explanation:
        stages = {"evidence": evidence.maps, **evidence.stages}
        return Explanation(
            image=image,
            geometry=trace.geometry,
            text_tokens=tuple(self._tokens(trace)),
            maps=_array(result.maps),
            provenance=self._provenance(image, method, settings, options),
            stages={name: _array(maps) for name, maps in stages.items()},
            alpha=None if result.alpha is None else _array(result.alpha),
            beta=None if result.beta is None else _array(result.beta),
            relevance=None if result.relevance is None else _array(result.relevance),
        )

    def _tokens(self, trace: Trace) -> Iterator[Token]:
        ids = trace.ids[trace.rows].tolist()
        texts = [text for part in _runs(trace.rows.tolist()) for text in pieces(self.adapter.tokenizer, ids[part])]
        top_ids = trace.text.top_ids[:, :_CANDIDATES].cpu()
        top = trace.text.top_probabilities[:, :_CANDIDATES].cpu().tolist()
        names = self.adapter.tokenizer.batch_decode(top_ids.reshape(-1, 1).tolist())
        probabilities = trace.text.log_probabilities.exp().cpu().tolist()
        special = (~trace.text.context).cpu().tolist()
        for row, position in enumerate(trace.rows.tolist()):
            listed = zip(names[row * top_ids.shape[1] :], top_ids[row].tolist(), top[row], strict=False)
            yield Token(
                text=texts[row],
                id=ids[row],
                row=row,
                position=position,
                kind="prompt" if row < trace.prompts else "answer",
                special=special[row],
                probability=probabilities[row],
                candidates=tuple(Candidate(name, token, p) for name, token, p in listed),
            )

    def _provenance(
        self, image: LoadedImage, method: Method, settings: Any, options: dict[str, Any] | None
    ) -> dict[str, Any]:
        import transformers

        model = self.adapter.model
        return {
            "model": self.name,
            "revision": self.revision,
            "family": self.adapter.family,
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": self.adapter.device.type,
            "attention": getattr(model.config, "_attn_implementation", None),
            "image_backend": self.adapter.image_backend,
            "method": method.name,
            "settings": asdict(settings),
            "generation": None if options is None else {k: v for k, v in options.items() if _plain(v)},
            "answer": "generated" if options is not None else "given",
            "image": {"sha256": image.sha256(), "size": list(image.size)},
            "versions": {
                "ercr": __version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "python": platform.python_version(),
            },
        }


def _runs(positions: Sequence[int]) -> list[slice]:
    """Ranges of consecutive positions: turns and the answer are decoded apart."""
    starts = [i for i in range(len(positions)) if i == 0 or positions[i] != positions[i - 1] + 1]
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], len(positions)], strict=True)]


def _shared(needs: Sequence[Needs]) -> list[tuple[Needs, list[int]]]:
    """Needs grouped so that each group is served by one run."""
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


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _array(tensor: Tensor) -> Any:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())
