"""An adapter for any class behind AutoModelForImageTextToText, which asks its processor and its model.

It names no family. Inputs are the checkpoint's own processor's. Where the visual tokens lie is probed once per picture
size: four charts through the processor say where its numbers come from, and gradients say which position of the
sequence they reach. A view shows the picture smaller on a canvas of its own size, through the same processor, behind
the same prompt. A pass is prepared by the model's own code up to the decoder's call, and the decoder is called with
everything it was given.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn

from ercr.errors import ErcrError, InputError, UnsupportedModel
from ercr.image.clips import GIVEN_RATE, LoadedClip, evenly
from ercr.image.facts import Facts
from ercr.image.geometry import Geometry, Panel
from ercr.image.pieces import Piece, pieces_of, together
from ercr.models.base import Adapter
from ercr.models.chat import Message
from ercr.models.decoder import logit_change
from ercr.models.generic.charts import float_leaves, frame_size
from ercr.models.generic.encoding import Encoded, Encoder
from ercr.models.generic.layouts import Layout, Layouts, noise
from ercr.models.generic.owners import Owners, Reached, Rest, owners
from ercr.models.inputs import Batch, Inputs, Media, Medium, Prepared, ViewKind, as_media, padded
from ercr.models.pasting import mean_colour, paste
from ercr.models.whole import as_generate, has_encoder

_CACHE = ("past_key_values", "use_cache", "return_dict", "output_attentions", "output_hidden_states", "input_ids")
_NOT_IN_SEQUENCE = (
    "its decoder is not called with the picture's embeddings "
    "(it reads the picture by cross-attention or as discrete codes, or places it itself)"
)
_ENCODER = "an encoder reads the picture and the prompt, and its decoder sees only their states"
_FOLLOWS = 0.4  # how far a canvas's cells may be from following the picture's scale, in shares of the logarithm
_GRID = 16  # cells along the longer side of a map whose model has none
_MOST_FRAMES = 64  # that are taken of a clip if its processor names no limit
_TRIAL = (67, 41)  # width and height of pictures that are used where any picture will do


class GenericAdapter(Adapter):
    """What `Adapter` says of a family, found out for a model of any type."""

    family: ClassVar[str] = "generic"
    model_types: ClassVar[tuple[str, ...]] = ()
    checkpoints: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[bool] = False

    def __init__(self, model: Any, processor: Any, tokenizer: Any, template: str | None) -> None:
        super().__init__(model, tokenizer, getattr(processor, "image_processor", None), template)
        self.processor = processor
        self.encoder = Encoder(processor, tokenizer, template)
        self._passed: dict[str, Rest] = {}  # what was found out about blocks of the tower, for the next size
        self._layouts = Layouts(self.title, self.encoder, self.image_token_id, self._owners)

    @property
    def title(self) -> str:
        return str(getattr(self.config, "model_type", type(self.model).__name__))

    # inputs

    def prepare(self, media: Media, messages: Sequence[Message], cells: bool = True) -> Prepared:
        """The processor's inputs, with the places of the visual tokens and of the conversation's own words."""
        encoded = self.encoder(media, messages)
        behind = {name: self._behind[name] for name in encoded.beside}
        try:
            layout = self._layouts(media)
        except UnsupportedModel:
            if cells:
                raise
            return self._without_places(encoded, media, messages, behind)
        found = torch.isin(encoded.ids, torch.tensor(sorted(layout.tokens))).nonzero()[:, 0]
        if len(found) != layout.count:
            raise InputError(
                f"The prompt has {len(found)} image tokens instead of {layout.count}: "
                f"remove the tokens that stand for a picture, and give one picture for each place."
            )
        own_words = encoded.own_words()
        visual = found[layout.order]
        return Prepared(
            encoded.ids, encoded.pixels, layout.geometry, visual, own_words, encoded.beside, behind, tuple(messages)
        )

    def _without_places(
        self, encoded: Encoded, media: Media, messages: Sequence[Message], behind: dict[str, int]
    ) -> Prepared:
        """The same without visual tokens; its maps have an even grid over each picture and each frame."""
        geometry, none = together([_even(medium) for medium in as_media(media)]), encoded.ids.new_empty(0)
        own_words = none if has_encoder(self.model) or encoded.prompt is None else encoded.prompt
        return Prepared(encoded.ids, encoded.pixels, geometry, none, own_words, encoded.beside, behind, tuple(messages))

    def image_inputs(self, image: Image.Image) -> tuple[dict[str, Tensor], Geometry]:
        geometry = self._layouts(image).geometry
        assert isinstance(geometry, Geometry), "one picture has a geometry of its own"
        return self.encoder(image).pixels, geometry

    def view_inputs(
        self, image: Image.Image, anchor: Geometry, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Geometry]:
        """The picture at a scale in the middle of a canvas of its own size, over the mean colour."""
        sheet, placed = self._on_canvas(image, anchor, scale)
        return self.encoder(sheet).pixels, placed

    def _on_canvas(self, image: Image.Image, anchor: Geometry, scale: float) -> tuple[Image.Image, Geometry]:
        width, height = image.size
        content = max(1, round(height * scale)), max(1, round(width * scale))
        sheet = paste(image, (height, width), content, self.neutral_colour, self._resample)
        scales = Fraction(content[1], width), Fraction(content[0], height)
        return sheet, anchor.placed(*scales, (width - content[1]) // 2, (height - content[0]) // 2)

    def sample_frames(self, facts: Facts, fps: float | None, num_frames: int | None) -> Sequence[int]:
        """The frames that the processor's own rule takes, by default two a second and at most as many as it says."""
        from transformers.video_utils import VideoMetadata

        rule = getattr(self.processor, "video_processor", None)
        if rule is None:
            raise self._no_clips()
        stated = any(getattr(rule, name, None) for name in ("num_frames", "fps"))
        if num_frames is None and fps is None and not stated:
            fps = GIVEN_RATE
        height, width = facts.size
        video = VideoMetadata(facts.frames, facts.fps, width, height, facts.seconds)
        limit = min(int(getattr(rule, "max_frames", None) or _MOST_FRAMES), facts.frames)
        if fps is not None and facts.seconds * fps > limit:
            fps, num_frames = None, limit
        num_frames = None if num_frames is None else min(num_frames, facts.frames)
        try:
            return [int(index) for index in rule.sample_frames(video, num_frames=num_frames, fps=fps)]
        except (ValueError, ZeroDivisionError):  # fewer frames than its rule wants
            return evenly(facts, num_frames or limit)

    def view(self, media: Media, anchor: Prepared, scale: float, kind: ViewKind) -> Prepared:
        """The whole prompt with other pictures: in some models a picture sees the text behind it.

        A model whose canvases follow the pictures gets the resized pictures themselves.
        """
        if kind == "interpolate":
            raise InputError(
                f"views='interpolate' needs a family with an adapter of its own, and {self.title} has none: "
                f"use views='pad'."
            )
        shown, pieces = as_media(media), pieces_of(anchor.geometry)
        resized = self._resized(shown, pieces, scale)
        if resized is not None:
            view = self.prepare(resized, anchor.messages)
            found = [
                _drawn(piece, frame_size(small), frame_size(medium))
                for piece, small, medium in zip(pieces_of(view.geometry), resized, shown, strict=True)
            ]
            return replace(view, geometry=together(found))
        sheets, found = [], []
        for medium, piece in zip(shown, pieces, strict=True):
            frames = [self._on_canvas(frame, piece.geometry, scale) for frame in frames_of(medium)]
            sheets.append(with_frames(medium, [sheet for sheet, _ in frames]))
            found.append(replace(piece, geometry=frames[0][1]))
        return replace(anchor, pixels=self.encoder(sheets, anchor.messages).pixels, geometry=together(found))

    def _resized(self, media: Sequence[Medium], anchors: Sequence[Piece], scale: float) -> list[Medium] | None:
        """The pictures at a scale if their canvases have about as many more or fewer cells; None if they have not."""
        small = []
        for medium, anchor in zip(media, anchors, strict=True):
            width, height = frame_size(medium)
            size = max(1, round(width * scale)), max(1, round(height * scale))
            if len(anchor.geometry.panels) > 1 or size == (width, height):
                return None
            frames = [f.resize(size, resample=Image.Resampling(self._resample)) for f in frames_of(medium)]
            small.append(with_frames(medium, frames))
        try:
            found = pieces_of(self._layouts(small).geometry)
        except ErcrError:  # a processor may refuse pictures that are too small or too narrow
            return None
        wanted = 2 * math.log(scale)
        for view, anchor in zip(found, anchors, strict=True):
            change = math.log(view.geometry.tokens / anchor.geometry.tokens)
            if len(view.geometry.panels) > 1 or view.slices != anchor.slices:
                return None
            if abs(change - wanted) > _FOLLOWS * abs(wanted):
                return None
        return small

    @property
    def _resample(self) -> int:
        return int(getattr(self.image_processor, "resample", None) or 3)

    def pixels_of(self, media: Media, anchor: Prepared) -> dict[str, Tensor]:
        # some models read the prompt there, too, in another tokenizer's ids
        pixels = self.encoder(media, anchor.messages or None).pixels
        return {name: value for name, value in pixels.items() if float_leaves(value)}

    @cached_property
    def neutral_colour(self) -> tuple[int, int, int]:
        try:
            return mean_colour(self.image_processor)
        except (AttributeError, TypeError, ValueError):
            return (128, 128, 128)

    @property
    def image_token(self) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(self.image_token_id))

    @cached_property
    def image_token_id(self) -> int:
        stated = (getattr(self.config, name, None) for name in ("image_token_id", "image_token_index"))
        return next((int(token) for token in stated if isinstance(token, int)), -1)

    @cached_property
    def _behind(self) -> dict[str, int]:
        """What each input with one number per token is for a token of the answer, as `generate` continues it."""
        encoded = self.encoder(noise(*_TRIAL))
        beside = {name: value[None] for name, value in encoded.beside.items()}
        from transformers.utils import ModelOutput

        continued = self.model._update_model_kwargs_for_generation(ModelOutput(), dict(beside), num_new_tokens=1)
        length = len(encoded.ids)
        return {
            name: int(continued[name][0, -1]) if continued[name].shape[-1] > length else 0 for name in encoded.beside
        }

    # one pass

    def collate(self, samples: Sequence[Prepared], pad_id: int) -> dict[str, Tensor]:
        ids, mask, offsets = padded(samples, pad_id)
        inputs = {"input_ids": ids, "attention_mask": mask}
        for name in samples[0].beside:
            values = torch.zeros_like(ids)
            for row, (sample, offset) in enumerate(zip(samples, offsets, strict=True)):
                values[row, offset:] = sample.beside[name]
            inputs[name] = values
        return {key: value.to(self.device) for key, value in inputs.items()} | self._pixels(samples)

    def pack(self, samples: Sequence[Prepared], pad_id: int) -> Batch:
        inputs = self.collate(samples, pad_id)
        longest = inputs["input_ids"].shape[1]
        offsets = tuple(longest - len(sample.input_ids) for sample in samples)
        none = inputs["input_ids"].new_empty(0)
        return Batch(inputs["input_ids"], None, none, none, none, inputs, None, None, offsets)

    def sort(self, sample: Prepared) -> Hashable:
        """Inputs of the same names and shapes can be joined."""
        return tuple(
            (name, tuple(value.shape[1:]) if isinstance(value, Tensor) else None)
            for name, value in sorted(sample.pixels.items())
        )

    def _pixels(self, samples: Sequence[Prepared]) -> dict[str, Any]:
        joined = {name: _joined([sample.pixels[name] for sample in samples]) for name in samples[0].pixels}
        return {name: self._on_device(value) for name, value in joined.items()}

    def _on_device(self, value: Any) -> Any:
        """Numbers on the model's device, floats in its precision, as its documentation asks for."""
        if isinstance(value, list | tuple):
            return type(value)(self._on_device(part) for part in value)
        if not isinstance(value, Tensor):
            return value
        return value.to(self.device, self.model.dtype if value.is_floating_point() else value.dtype)

    @cached_property
    def batches(self) -> bool:
        """Whether inputs of several samples can be joined: if that gives what the processor makes of a batch."""
        images = [noise(*_TRIAL, seed) for seed in (0, 1)]
        try:
            official = self.encoder.together(images)
            singles = [self.encoder(image) for image in images]
            ours = {name: _joined([one.pixels[name] for one in singles]) for name in singles[0].pixels}
        except (ErcrError, RuntimeError, TypeError, ValueError):
            return False
        return all(name in official and _equal(official[name], value) for name, value in ours.items())

    def decoder_inputs(self, batch: Batch) -> Inputs:
        """What the model's own code calls the decoder with; the decoder itself is not run."""
        return self._up_to_the_decoder(dict(batch.pixels))

    def _up_to_the_decoder(self, inputs: dict[str, Any]) -> Inputs:
        model, captured = self.model, list[Inputs]()
        decoder = self.language_model
        known = inspect.signature(type(decoder).forward)

        def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            captured.append({**known.bind_partial(module, *args).arguments, **kwargs})
            raise Reached

        handle = decoder.register_forward_pre_hook(stop, with_kwargs=True)
        try:
            model(**as_generate(model, inputs), return_dict=True)
        except Reached:
            pass
        finally:
            handle.remove()
        if not captured or captured[0].get("inputs_embeds") is None:
            raise UnsupportedModel(_NOT_IN_SEQUENCE)
        return {name: value for name, value in captured[0].items() if name not in _CACHE and name != "self"}

    @cached_property
    def _logit_change(self) -> Any:
        return logit_change(self.model, self.head)

    def adjust(self, logits: Tensor) -> Tensor:
        return torch.as_tensor(self._logit_change(logits))

    # where the visual tokens lie

    def layout(self, size: tuple[int, int]) -> Layout:
        """The layout of a picture's size (width, height); the reason if it has none is raised."""
        return self._layouts(Image.new("RGB", size))

    def _owners(self, encoded: Encoded, leaves: list[Tensor]) -> Owners | None:
        if has_encoder(self.model):
            raise UnsupportedModel(_ENCODER)
        return owners(self, lambda own, given: _embeddings(own, encoded, given), leaves, self._passed)


def _embeddings(own: Adapter, encoded: Encoded, leaves: list[Tensor]) -> Tensor:
    """The decoder's input embeddings [L, d] of one sample, whose floats are `leaves`."""
    assert isinstance(own, GenericAdapter)
    given = iter(leaves)

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(value[key]) for key in sorted(value)}
        if isinstance(value, list | tuple):
            return type(value)(filled(part) for part in value)
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim >= 2:
            return next(given)
        return value.to(own.device) if isinstance(value, Tensor) else value

    ids = encoded.ids[None].to(own.device)
    beside = {name: value[None].to(own.device) for name, value in encoded.beside.items()}
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **beside, **filled(encoded.pixels)}
    return torch.as_tensor(own._up_to_the_decoder(inputs)["inputs_embeds"])[0]


def frames_of(medium: Medium) -> Sequence[Image.Image]:
    """The frames of a clip; a picture is its own."""
    return medium.frames if isinstance(medium, LoadedClip) else (medium,)


def with_frames(medium: Medium, frames: Sequence[Image.Image]) -> Medium:
    """A clip, or a picture, with other frames in place of its own."""
    return replace(medium, frames=tuple(frames)) if isinstance(medium, LoadedClip) else frames[0]


def _even(medium: Medium) -> Piece:
    """An even grid over a picture, or over each frame of a clip."""
    width, height = frame_size(medium)
    step = max(width, height) / _GRID
    grid = max(1, round(height / step)), max(1, round(width / step))
    geometry = Geometry((height, width), (Panel(grid, (0.0, 0.0, float(width), float(height))),))
    if not isinstance(medium, LoadedClip):
        return Piece(geometry)
    return Piece(geometry, tuple((time,) for time in medium.times), medium.end)


def _drawn(piece: Piece, small: tuple[int, int], size: tuple[int, int]) -> Piece:
    """The cells of a piece that shows a picture of `size` as a small one."""
    scales = Fraction(small[0], size[0]), Fraction(small[1], size[1])
    return replace(piece, geometry=replace(piece.geometry.placed(*scales, 0, 0), size=(size[1], size[0])))


def _joined(parts: Sequence[Any]) -> Any:
    """One input of several samples: tensors along their first axis, lists one behind the other."""
    if isinstance(parts[0], Tensor):
        return torch.cat(list(parts))
    return [item for part in parts for item in part] if isinstance(parts[0], list | tuple) else parts[0]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and bool(torch.equal(one, other))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
