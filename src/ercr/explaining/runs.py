"""What explaining is made of: samples prepared from pictures and prompts, runs of a batch, and their explanations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from ercr.errors import InputError
from ercr.explaining.bulk import BatchSize, Ready, Sizes, in_batches, ready_to_copy
from ercr.explaining.candidates import can_compare, compare, wanted_tokens
from ercr.explaining.describe import Candidates, Explained, Measured, describe
from ercr.explaining.grounding import Grounds, measure
from ercr.explaining.together import run_all
from ercr.explanation import Explanation
from ercr.image.images import ImageLike, load_image
from ercr.methods.base import Method, Settings
from ercr.models.base import Adapter
from ercr.models.chat import Message, as_messages
from ercr.trace import Needs, Trace, TraceRequest, trace_samples
from ercr.trace.grad_mode import without_gradients
from ercr.trace.greedy import Generation
from ercr.zoo import locate, packaged

Chosen = tuple[Method, Settings]  # a method and its settings
Answer = str | Sequence[int]  # text, or token ids


@dataclass(frozen=True)
class Extras:
    """What an explanation holds beside the maps of the words that were said."""

    candidates: bool | Sequence[str] = False  # maps of the model's other candidates, and of these words
    grounding: Grounds | None = None  # whether each word was seen or guessed


_NOTHING = Extras()


class Runs:
    """Runs of one loaded model, which has a name and a revision."""

    def __init__(self, adapter: Adapter, name: str, revision: str | None) -> None:
        self.adapter, self.name, self.revision = adapter, name, revision

    @without_gradients
    def ready(
        self,
        image: ImageLike,
        prompt: str | Sequence[Message],
        answer: Answer | None,
        cells: bool = True,
        ahead: Sequence[Needs] = (),
    ) -> Ready:
        """An image with its request; views that `ahead` needs are prepared now, the others when the model is run."""
        loaded = load_image(image)
        adapter = self.adapter.for_bulk if ahead else self.adapter
        prepared = adapter.prepare(loaded.rgb, as_messages(prompt), cells)
        request = TraceRequest(loaded.rgb, prepared, self._answer(answer))
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

    @without_gradients
    def explain(
        self, batch: Sequence[Ready], resolved: Sequence[Chosen], options: Generation, extras: Extras = _NOTHING
    ) -> list[list[Explanation]]:
        """Explain one batch by several methods: `[image][method]`. All methods explain the answer of the first run."""
        others = self._candidates(extras, resolved)
        jobs: dict[tuple[int, int], Explained] = {}
        measured: list[Measured] | list[None] = [None] * len(batch)
        requests = [ready.request for ready in batch]
        for group, (needs, members) in enumerate(_shared([method.needs(settings) for method, settings in resolved])):
            first = group == 0 and extras.grounding is not None
            traces = trace_samples(self.adapter, requests, replace(needs, lens=first), options)
            if first:
                measured = self.measure(traces, requests, extras.grounding or Grounds())
            requests = [
                replace(request, answer=trace.ids[trace.input_length :])
                for request, trace in zip(requests, traces, strict=True)
            ]
            for index in members:
                method, settings = resolved[index]
                found = run_all(method, settings, traces)
                for row, (trace, ready, parts) in enumerate(zip(traces, batch, found, strict=True)):
                    generated = options if ready.request.answer is None else None
                    extra = others(method, settings, trace), measured[row]
                    jobs[row, index] = Explained(ready.image, trace, method, settings, generated, *parts, *extra)
        places = [(row, index) for row in range(len(batch)) for index in range(len(resolved))]
        made = iter(describe(self.adapter, self.name, self.revision, [jobs[place] for place in places]))
        return [[next(made) for _ in resolved] for _ in batch]

    def measure(self, traces: Sequence[Trace], requests: Sequence[TraceRequest], grounds: Grounds) -> list[Measured]:
        """What tells seen words from guessed ones, for a batch of traces that kept states for it."""
        return measure(self.adapter, traces, requests, grounds, grounds.resolved(self._known_name))

    @property
    def _known_name(self) -> str:
        """The name of a packaged model, also where it was loaded from its folder."""
        folder = Path(self.name)
        if folder.name in packaged() and Path(locate(folder.name)) == folder:
            return folder.name
        return self.name

    def _candidates(
        self, extras: Extras, resolved: Sequence[Chosen]
    ) -> Callable[[Method, Settings, Trace], Candidates | None]:
        """A function that makes the maps of candidates, or gives None where they are not wanted or not possible."""
        if extras.candidates is False:
            return lambda method, settings, trace: None
        able = [can_compare(method, settings) for method, settings in resolved]
        if not isinstance(extras.candidates, bool) and not any(able):
            raise InputError(
                f"Method {resolved[0][0].name!r} cannot make maps of words that were not said: use one that reads "
                f"visual states, such as ercr, tam or cam."
            )
        encode = self.adapter.tokenizer
        words = () if isinstance(extras.candidates, bool) else tuple(extras.candidates)
        tokens = wanted_tokens(words, lambda text: encode(text, add_special_tokens=False)["input_ids"])

        def make(method: Method, settings: Settings, trace: Trace) -> Candidates | None:
            if not can_compare(method, settings) or len(trace.rows) == trace.prompts:
                return None
            return compare(method, settings, trace, tokens)

        return make

    @without_gradients
    def in_batches(
        self,
        images: Sequence[ImageLike],
        prompts: str | Sequence[str | Sequence[Message]],
        answers: Sequence[Answer] | None,
        resolved: Sequence[Chosen],
        options: Generation,
        batch_size: BatchSize | Sizes,
        done: Callable[[int], None],
        extras: Extras = _NOTHING,
    ) -> list[list[Explanation]]:
        """Explain many images; they are prepared in background threads."""
        per_image = [prompts] * len(images) if isinstance(prompts, str) else list(prompts)
        given: list[Answer | None] = [None] * len(images) if answers is None else list(answers)
        if answers is not None and None in given:
            raise InputError("Give an answer for every image, or omit answers.")
        if not len(images) == len(per_image) == len(given):
            raise InputError(f"Give {len(images)} prompts and answers for {len(images)} images, or one prompt for all.")
        needs = [method.needs(settings) for method, settings in resolved]

        def prepare(index: int) -> Ready:
            return self.ready(images[index], per_image[index], given[index], needs_cells(resolved), needs)

        def run(batch: Sequence[Ready]) -> list[list[Explanation]]:
            return self.explain(batch, resolved, options, extras)

        sizes = batch_size if isinstance(batch_size, Sizes) else Sizes(batch_size, self.adapter)
        return in_batches(range(len(images)), prepare, run, sizes, done)


def needs_cells(resolved: Sequence[Chosen]) -> bool:
    """Whether any of the methods reads visual tokens with a place on the picture."""
    return any(method.needs(settings).cells for method, settings in resolved)


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
