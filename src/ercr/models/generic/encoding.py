"""A conversation and its pictures through the checkpoint's own processor, with the places of the user's words."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ercr.errors import CheckpointError, ErcrError, InputError, UnsupportedModel
from ercr.image.clips import LoadedClip
from ercr.models.chat import Message, as_messages, needs_special_tokens, positions_in, prompt_alone, render_text
from ercr.models.inputs import Media, as_media

_NOT_FOR_THE_MODEL = ("labels", "offset_mapping", "text_replacement_offsets", "video_metadata")
_CONTEXT = 12  # characters of the template around a text that help to find it
_WORDS = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Describe this image."}]}]


@dataclass(frozen=True)
class Encoded:
    """What the processor makes of a conversation with its pictures."""

    ids: Tensor  # [L]
    beside: dict[str, Tensor]  # [L] inputs with one number per token
    pixels: dict[str, Any]  # everything else
    prompt: Tensor | None  # [P] positions of the conversation's own text; None if they cannot be told

    def own_words(self) -> Tensor:
        """The positions of the conversation's own text."""
        if self.prompt is None:
            raise CheckpointError(
                "The places of the prompt's words cannot be told, because the processor's tokens are not those of a "
                "fast tokenizer: use a checkpoint with a tokenizer.json."
            )
        return self.prompt


class _Listener:
    """Stands for a tokenizer and remembers the last text that it was given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.text, self.special = "", True

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_tokenizer"], name)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __call__(self, text: Any = None, *args: Any, **options: Any) -> Any:
        given = text if isinstance(text, str) else next(iter(text or []), None)
        if isinstance(given, str):
            self.text, self.special = given, options.get("add_special_tokens", True)
        return self._tokenizer(text, *args, **options)

    def places(self, ids: list[int]) -> Tensor | None:
        """Where each token stands in the text [L, 2]; None if these ids do not contain the text's.

        Some processors put the picture's tokens in front afterwards: these stand nowhere.
        """
        if not getattr(self._tokenizer, "is_fast", False):
            return None
        found = self._tokenizer(self.text, add_special_tokens=self.special, return_offsets_mapping=True)
        before = len(ids) - len(found["input_ids"])
        if before < 0 or ids[before:] != found["input_ids"]:
            return None
        return torch.cat([torch.zeros(before, 2, dtype=torch.long), torch.tensor(found["offset_mapping"]).view(-1, 2)])


class Encoder:
    """Encodes conversations with the checkpoint's processor; tokenizer and template are the processor's own."""

    def __init__(self, processor: Any, tokenizer: Any, template: str | None) -> None:
        self.processor, self.tokenizer, self.template = processor, tokenizer, template
        self._nested = True  # whether the processor takes a list of pictures per conversation

    def __call__(self, media: Media, messages: Sequence[Message] | None = None) -> Encoded:
        """The model's inputs, on the CPU; without messages, of a question about what is shown."""
        shown = as_media(media)
        text, spans = self._written(messages or trial_messages(shown))
        listener = _Listener(self.tokenizer)
        data = self._process([text], [shown], listener)
        if "input_ids" not in data:
            kind = type(self.processor).__name__
            raise UnsupportedModel(f"The model's processor ({kind}) makes no tokens of the prompt: use another model.")
        ids = torch.as_tensor(data.pop("input_ids"))[0]
        data.pop("attention_mask", None)
        beside = {name: value[0] for name, value in data.items() if _per_token(value, len(ids))}
        pixels = {name: value for name, value in data.items() if name not in beside}
        return Encoded(ids, beside, pixels, _own_text(text, spans, listener, ids))

    def together(self, images: Sequence[Image.Image]) -> dict[str, Any]:
        """The processor's own batch of one conversation with several pictures."""
        text, _ = self._written(_WORDS)
        data = self._process([text] * len(images), [[image] for image in images], self.tokenizer)
        return {name: value for name, value in data.items() if name not in ("input_ids", "attention_mask")}

    def _written(self, messages: Sequence[Message]) -> tuple[str, list[tuple[int, int]]]:
        """The conversation's text, and where its own words stand in it. Without a template it is the prompt itself."""
        if self.template is not None:
            return render_text(self.tokenizer, self.template, messages)
        prompt, start = prompt_alone(messages), len(self._place)
        return self._place + prompt, [(start, start + len(prompt))]

    @cached_property
    def _place(self) -> str:
        """What stands for the picture in a text without a template: nothing if the processor puts it there itself."""
        token = getattr(self.processor, "image_token", None) or getattr(self.tokenizer, "image_token", None)
        if not token:
            return ""
        picture = [Image.new("RGB", (64, 64))]
        try:
            placed = self._process(["Describe."], [picture], self.tokenizer).get("input_ids")
        except InputError:
            return str(token)
        if placed is None or self.tokenizer.convert_tokens_to_ids(str(token)) not in placed:
            return str(token)
        try:  # if both are the same to the processor, it prefers to be told
            told = self._process([f"{token}Describe."], [picture], self.tokenizer)["input_ids"]
        except InputError:
            return ""
        return str(token) if torch.equal(told, placed) else ""

    def _process(self, texts: list[str], media: Sequence[Media], tokenizer: Any) -> dict[str, Any]:
        """The processor's output for some conversations, each with what it shows."""
        processor = copy(self.processor)
        processor.tokenizer = tokenizer
        options: dict[str, Any] = {"return_tensors": "pt"}
        if not needs_special_tokens(self.tokenizer, texts[0]):
            options["add_special_tokens"] = False
        try:
            data = self._call(processor, texts, [as_media(shown) for shown in media], options)
        except ErcrError:
            raise
        # processors raise many kinds of errors for a prompt or a picture that they do not take
        except Exception as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            kind = type(self.processor).__name__
            raise InputError(
                f"The model's processor ({kind}) does not take this prompt and picture: {reason}."
            ) from error
        return {name: value for name, value in dict(data).items() if name not in _NOT_FOR_THE_MODEL}

    def _call(self, processor: Any, texts: list[str], media: Sequence[Sequence[Any]], options: dict[str, Any]) -> Any:
        """The processor's answer; most take a list of pictures per conversation, some a flat list."""
        nested = [[medium for medium in shown if isinstance(medium, Image.Image)] for shown in media]
        flat = [image for images in nested for image in images]
        clips = [medium for shown in media for medium in shown if isinstance(medium, LoadedClip)]
        options = {**options, **(_videos(clips) if clips else {})}
        if not flat:
            return processor(text=texts, **options)
        if not self._nested:
            return processor(text=texts, images=flat, **options)
        try:
            return processor(text=texts, images=nested, **options)
        except (ValueError, TypeError, AttributeError):
            found = processor(text=texts, images=flat, **options)
            self._nested = False
            return found


def trial_messages(media: Media) -> Sequence[Message]:
    """A question about what is shown, where any question will do."""
    kinds = ["video" if isinstance(medium, LoadedClip) else "image" for medium in as_media(media)]
    return _WORDS if kinds == ["image"] else as_messages("Describe this image.", kinds)  # type: ignore[arg-type]


def _videos(clips: Sequence[LoadedClip]) -> dict[str, Any]:
    """The processor's options for clips whose frames are chosen already."""
    from transformers.video_utils import VideoMetadata

    stated = [
        VideoMetadata(
            total_num_frames=clip.facts.frames,
            fps=clip.facts.fps,
            duration=clip.facts.seconds,
            height=clip.size[0],
            width=clip.size[1],
            frames_indices=list(clip.indices),
        )
        for clip in clips
    ]
    videos = [np.stack([np.asarray(frame) for frame in clip.frames]) for clip in clips]
    return {"videos": videos, "video_metadata": stated, "do_sample_frames": False}


def _per_token(value: Any, length: int) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point() and tuple(value.shape) == (1, length)


def _own_text(text: str, spans: list[tuple[int, int]], heard: _Listener, ids: Tensor) -> Tensor | None:
    """Positions of the conversation's own text among the processor's token ids.

    The processor replaces the places of pictures in the text by many tokens, so text behind them is moved.
    """
    places = heard.places(ids.tolist())
    if places is None:
        return None
    before = _common(text, heard.text)
    behind = _common(text[before:][::-1], heard.text[before:][::-1])
    moved: list[tuple[int, int]] = []
    end = len(heard.text)
    for start, stop in reversed(spans):
        if stop > before and start >= len(text) - behind:
            start, stop = start + len(heard.text) - len(text), stop + len(heard.text) - len(text)
        elif stop > before:  # a processor may add something behind the text
            start, stop = _last(heard.text[:end], text, start, stop, before)
        moved.append((start, stop))
        end = start
    return positions_in(moved, places)


def _last(heard: str, text: str, start: int, stop: int, least: int) -> tuple[int, int]:
    """Where a part of the text stands last in what was heard, with as much around it as is the same there."""
    for more in range(_CONTEXT, -1, -1):
        low, high = max(start - more, 0), min(stop + more, len(text))
        at = heard.rfind(text[low:high])
        if at + start - low >= least and at >= 0:
            return at + start - low, at + stop - low
    raise InputError("The prompt contains a token that the model reads as a picture: remove it.")


def _common(one: str, other: str) -> int:
    """Length of the common beginning of two texts."""
    count = min(len(one), len(other))
    return next((i for i in range(count) if one[i] != other[i]), count)
