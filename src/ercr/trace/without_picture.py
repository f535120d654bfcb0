"""The same words read without their picture: how probable each token of an answer is then.

The cheapest way needs no picture at all: the image tokens are taken out of the sequence, which leaves a few dozen
tokens of text. Models that cannot read a prompt without a picture are shown a grey one instead, for a whole pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ercr.errors import Cancelled, InputError
from ercr.image.clips import LoadedClip
from ercr.image.pieces import pieces_of
from ercr.models.base import Adapter
from ercr.models.inputs import Medium, Prepared, as_media
from ercr.models.whole import logits_before
from ercr.trace.answers import log_probabilities_behind, without_features
from ercr.trace.cancel import cancellable
from ercr.trace.data import TraceRequest
from ercr.trace.memory import out_of_memory
from ercr.trace.ranked import own_log_probabilities
from ercr.trace.scoring import answer_log_probabilities
from ercr.trace.tokens import pad_token

TEXT, GREY = "text", "grey"
KINDS = (TEXT, GREY, "black", "noise")
Logs = list[Tensor]  # [R] for each sample


@torch.no_grad()
def without_picture(
    adapter: Adapter, requests: Sequence[TraceRequest], answers: Sequence[Tensor], kinds: Sequence[str] = (TEXT,)
) -> dict[str, Logs]:
    """Log-probabilities of each sample's answer without its picture, by what stood instead of it.

    Where the text alone cannot be read, `text` is left out and `grey` stands for it.
    """
    found: dict[str, Logs] = {}
    for kind in dict.fromkeys(kinds):
        if kind not in KINDS:
            raise InputError(f"A picture can be replaced by {', '.join(KINDS)}, not by {kind!r}.")
        if kind == TEXT and (read := _reading_text(adapter, requests, answers)) is not None:
            found[TEXT] = read
        elif (shown := GREY if kind == TEXT else kind) not in found:
            found[shown] = _showing(adapter, requests, answers, shown)
    return found


def _reading_text(adapter: Adapter, requests: Sequence[TraceRequest], answers: Sequence[Tensor]) -> Logs | None:
    """The answers read behind the text of their prompts alone; None if the model cannot."""
    if adapter.reads_text is False:
        return None
    alone = {id(request): text_alone(request.prepared, adapter.feature_tokens) for request in requests}
    prompts = [alone[id(request)] for request in requests]
    ways: list[Callable[[], Logs]] = [lambda: _as_a_whole(adapter, prompts, answers)]
    if requests[0].prepared.cells:
        ways.insert(0, lambda: _in_one_pass(adapter, prompts, answers))
    for way in ways:
        try:
            found = way()
        # a model's own code fails in many ways where it expects a picture
        except Exception as error:
            if isinstance(error, Cancelled) or out_of_memory(error) or adapter.reads_text:
                raise
            continue
        if all(bool(torch.isfinite(logs).all()) for logs in found[:1]):
            adapter.reads_text = True
            return found
    adapter.reads_text = False
    return None


def text_alone(prompt: Prepared, image_tokens: Sequence[int]) -> Prepared:
    """A prompt without its pictures: from each one's first image token to its last, only the user's words stay."""
    ids = prompt.input_ids
    shown = torch.isin(ids, torch.tensor(list(image_tokens)))
    shown[prompt.visual] = True
    kept = ~shown
    for start, stop in _spans(prompt, shown):
        kept[start:stop] = False
    kept[prompt.prompt] = ~shown[prompt.prompt]
    moved = kept.cumsum(0) - 1
    return replace(
        prompt,
        input_ids=ids[kept],
        pixels={},
        visual=prompt.visual[:0],
        prompt=moved[prompt.prompt[kept[prompt.prompt]]],
        beside={name: values[kept] for name, values in prompt.beside.items()},
    )


def _spans(prompt: Prepared, shown: Tensor) -> list[tuple[int, int]]:
    """Where the pictures and clips stand in a prompt; tokens around and between their visual tokens belong to them."""
    at = shown.nonzero()[:, 0]
    pieces = pieces_of(prompt.geometry)
    if not len(at):
        return []
    if not prompt.cells or len(pieces) == 1:
        return [(int(at[0]), int(at[-1]) + 1)]
    own = torch.split(prompt.visual, [piece.tokens for piece in pieces])
    return [(int(visual.min()), int(visual.max()) + 1) for visual in own]


def _in_one_pass(adapter: Adapter, prompts: Sequence[Prepared], answers: Sequence[Tensor]) -> Logs:
    """All samples together, without the language head at positions that are not asked for."""
    own = cancellable(adapter)
    if len(prompts) > 1 and all(prompt is prompts[0] for prompt in prompts) and adapter.compiled is None:
        return log_probabilities_behind(adapter, prompts[0], answers)
    full = [prompt.with_answer(answer) for prompt, answer in zip(prompts, answers, strict=True)]
    batch = without_features(own, own.pack(full, pad_token(adapter)))
    states = adapter.compiled.forward(batch) if adapter.compiled is not None else own.read(own.decoder_inputs(batch))
    emits = [
        state[len(state) - len(answer) - 1 : -1] if len(answer) else state[:0]
        for state, answer in zip(states, answers, strict=True)
    ]
    logs = own_log_probabilities(adapter, torch.cat(emits), torch.cat(list(answers)))
    return list(torch.split(logs, [len(answer) for answer in answers]))


def _as_a_whole(adapter: Adapter, prompts: Sequence[Prepared], answers: Sequence[Tensor]) -> Logs:
    """One sample after another, by the model's own forward pass."""
    own = cancellable(adapter)
    found = []
    for prompt, answer in zip(prompts, answers, strict=True):
        start = len(prompt.input_ids)
        rows = torch.arange(start, start + len(answer))
        logs = logits_before(own, [prompt], answer, rows)[0].log_softmax(-1)
        found.append(logs.gather(-1, answer.to(logs.device)[:, None])[:, 0])
    return found


def _showing(adapter: Adapter, requests: Sequence[TraceRequest], answers: Sequence[Tensor], kind: str) -> Logs:
    """The answers read behind their prompts with another picture of the same size."""
    bulk = adapter.for_bulk
    shown = []
    for request in requests:
        other = [instead_of(medium, partial(other_picture, kind=kind)) for medium in as_media(request.media)]
        pixels = bulk.pixels_of(bulk.uploaded(other), request.prepared)
        shown.append(replace(request.prepared, pixels={**request.prepared.pixels, **pixels}))
    return answer_log_probabilities(adapter, shown, answers)


def instead_of(medium: Medium, make: Callable[[tuple[int, int]], Image.Image]) -> Medium:
    """A picture made for this width and height, or a clip whose frames are such pictures."""
    if isinstance(medium, LoadedClip):
        return replace(medium, frames=tuple(make(frame.size) for frame in medium.frames))
    return make(medium.size)


def other_picture(size: tuple[int, int], kind: str) -> Image.Image:
    """A picture of this width and height that shows nothing."""
    if kind == "noise":
        pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        return Image.fromarray(pixels)
    return Image.new("RGB", size, (0, 0, 0) if kind == "black" else (128, 128, 128))
