"""The adapter: what the rest of the package must know about a model family; each family is a subclass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from ercr.errors import CheckpointError, InputError
from ercr.image.clips import LoadedClip
from ercr.image.on_device import DevicePicture
from ercr.image.pieces import Piece, pieces_of, together
from ercr.image.sending import sent
from ercr.models.chat import Chat, Message, Placeholder, refuse_placeholders, render_chat
from ercr.models.device_pictures import DeviceProcessor, on_device
from ercr.models.family import Family
from ercr.models.inputs import (
    Batch,
    Inputs,
    Media,
    Medium,
    Picture,
    Prepared,
    ViewKind,
    as_media,
    joined_pixels,
    padded,
)
from ercr.models.replica import replica
from ercr.models.uint8_pixels import Uint8Processor, every_value_image, normalise_uint8, table_is_enough, value_table


class Adapter(Family):
    """A loaded model with its tokenizer and image processor, with the same interface for all families."""

    def __init__(
        self, model: Any, tokenizer: Any, image_processor: Any, chat_template: str | None, video_processor: Any = None
    ) -> None:
        super().__init__(model, tokenizer, image_processor, chat_template, video_processor)
        self._chat = lru_cache(maxsize=256)(self._rendered)
        self.image_ids = lru_cache(maxsize=256)(self._image_ids)

    def on_replica(self) -> Adapter:
        """The same adapter with a replica of the model, so that one run's hooks and patches affect no other run."""
        other = copy(self)
        for name in ("head", "language_model", "blocks", "final_norm"):
            vars(other).pop(name, None)
        other.model = replica(self.model)
        for module in other.model.modules():
            module.training = False  # whatever the mode of the user's model
        return other

    def pixels_of(self, media: Media, anchor: Prepared) -> dict[str, Tensor]:
        """The image inputs alone, of what is shown in the places of prepared pictures and clips."""
        return joined_pixels([self._shown(medium)[0] for medium in as_media(media)])

    def prepare(self, media: Media, messages: Sequence[Message], cells: bool = True) -> Prepared:
        """Model inputs for chat messages and what is shown in their places, equal to the official processor's.

        Without `cells`, a model whose visual tokens have no place on the picture is not refused.
        """
        shown = [self._shown(medium) for medium in as_media(media)]
        pieces = [piece for _, piece in shown]
        chat = self.chat(messages, [self._placeholder(piece) for piece in pieces])
        if int(chat.ids.max()) >= self.vocabulary:
            raise CheckpointError(
                "The tokenizer has tokens that the model does not have: use the tokenizer of the same checkpoint."
            )
        geometry = together(pieces)
        visual = self._visual(chat.ids, pieces)
        if len(visual) != geometry.tokens:
            raise InputError(
                f"The prompt has {len(visual)} image tokens instead of {geometry.tokens}: "
                f"use a chat template that places each image exactly once."
            )
        return Prepared(chat.ids, joined_pixels([pixels for pixels, _ in shown]), geometry, visual, chat.text_positions)

    def chat(self, messages: Sequence[Message], places: Sequence[Placeholder]) -> Chat:
        """The conversation with the texts that stand for what is shown; cached, as many pictures get one prompt."""
        return self._chat(json.dumps(list(messages)), tuple(places), self.chat_template)

    def _rendered(self, messages: str, places: tuple[Placeholder, ...], template: str | None) -> Chat:
        given = json.loads(messages)
        refuse_placeholders(given, [token for token in (self.image_token, self.video_token) if token])
        return render_chat(self.tokenizer, template, given, places)

    def _shown(self, medium: Medium) -> tuple[dict[str, Tensor], Piece]:
        if isinstance(medium, LoadedClip):
            return self.clip_inputs(medium)
        pixels, geometry = self.image_inputs(medium)
        return pixels, Piece(geometry)

    def _placeholder(self, piece: Piece) -> Placeholder:
        if piece.clip:
            assert self.video_token is not None, "a family that takes clips has a token for them"
            return Placeholder(self.video_token, self.expand_clip(piece))
        return Placeholder(self.image_token, self.expand(piece.geometry))

    def _visual(self, ids: Tensor, pieces: Sequence[Piece]) -> Tensor:
        """Positions of the visual tokens of all pieces, one piece after another."""
        if len(pieces) == 1 and not pieces[0].clip:
            return self.visual_positions(ids, pieces[0].geometry)
        found = []
        for (start, stop), piece in zip(self._spans(ids, pieces), pieces, strict=True):
            own = ids[start:stop]
            cells = self._own_tokens(own) if piece.clip else self.visual_positions(own, piece.geometry)
            found.append(start + cells)
        return torch.cat(found)

    def _spans(self, ids: Tensor, pieces: Sequence[Piece]) -> list[tuple[int, int]]:
        """Where each piece stands in the token ids: its first image token, and behind its last one."""
        own, spans, cursor = self._own_tokens(ids), list[tuple[int, int]](), 0
        for piece in pieces:
            following = own[own >= cursor]
            if not len(following):
                raise InputError("The prompt has no image tokens for one of the pictures: use another chat template.")
            start = int(following[0])
            cursor = start + len(self.image_ids(self._placeholder(piece).expanded))
            spans.append((start, cursor))
        return spans

    def _own_tokens(self, ids: Tensor) -> Tensor:
        """Positions of the tokens that image features replace."""
        return torch.isin(ids, torch.tensor(self.feature_tokens)).nonzero()[:, 0]

    def view(self, media: Media, anchor: Prepared, scale: float, kind: ViewKind) -> Prepared:
        """Inputs of an auxiliary view: everything shown at the scale, with the anchor's text before and between it.

        Nothing follows the last visual token, because it would change no visual state.
        """
        pieces = pieces_of(anchor.geometry)
        shown = [self._smaller(m, p, scale, kind) for m, p in zip(as_media(media), pieces, strict=True)]
        parts, cursor = [], 0
        for (start, stop), (_, piece) in zip(self._spans(anchor.input_ids, pieces), shown, strict=True):
            own = torch.tensor(self.image_ids(self._placeholder(piece).expanded))
            parts += [anchor.input_ids[cursor:start], own]
            cursor = stop
        ids, views = torch.cat(parts), [piece for _, piece in shown]
        pixels = joined_pixels([pixels for pixels, _ in shown])
        return Prepared(ids, pixels, together(views), self._visual(ids, views), ids.new_empty(0))

    def _smaller(self, medium: Medium, anchor: Piece, scale: float, kind: ViewKind) -> tuple[dict[str, Tensor], Piece]:
        if isinstance(medium, LoadedClip):
            return self.clip_view_inputs(medium, anchor, scale, kind)
        pixels, geometry = self.view_inputs(medium, anchor.geometry, scale, kind)
        return pixels, Piece(geometry)

    def _image_ids(self, expanded: str) -> list[int]:
        """The tokens of a picture's or a clip's text from its first image token to its last; others may be between."""
        ids = list(self.tokenizer(expanded, add_special_tokens=False)["input_ids"])
        own = [place for place, token in enumerate(ids) if token in self.feature_tokens]
        return ids[own[0] : own[-1] + 1]

    def collate(self, samples: Sequence[Prepared], pad_id: int) -> dict[str, Tensor]:
        """A left-padded batch on the model's device, as keyword arguments of the model."""
        ids, mask, _ = padded(samples, pad_id)
        inputs = {"input_ids": ids, "attention_mask": mask, **self.extra_inputs(ids)}
        return {key: value.to(self.device) for key, value in inputs.items()} | self._pixels(samples)

    def pack(self, samples: Sequence[Prepared], pad_id: int) -> Batch:
        """A left-padded batch. Positions and masks are computed on the CPU, so that no pass waits for the device."""
        ids, mask, offsets = padded(samples, pad_id)
        positions = self.position_ids(samples, mask)
        device = self.device
        grids = [s.pixels[key] for key in ("image_grid_thw", "video_grid_thw") for s in samples if key in s.pixels]
        return Batch(
            ids=sent(ids, device),
            mask=sent(mask, device) if any(offsets) else None,
            positions=sent(positions, device),
            # a clip's times may reach further than the text behind it
            next_positions=sent(positions.reshape(-1, *ids.shape).amax((0, 2))[:, None] + 1, device),
            image_positions=sent(self.feature_positions(ids, mask), device),
            pixels=self._pixels(samples),
            image_grids=torch.cat(grids) if grids else None,
            tower_inputs=self.tower_inputs(torch.cat(grids)) if grids else None,
            offsets=offsets,
        )

    def feature_positions(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Flat positions of the tokens that image features replace, in the features' order: pictures, then clips."""
        there = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        return torch.cat([((ids == token) & there).flatten().nonzero()[:, 0] for token in self.feature_tokens])

    def _pixels(self, samples: Sequence[Prepared]) -> dict[str, Tensor]:
        """Image inputs, copied one by one (background threads put them into pinned memory) and joined on the device."""
        device = self.device
        names = dict.fromkeys(name for sample in samples for name in sample.pixels)
        moved = {
            name: torch.cat([s.pixels[name].to(device, non_blocking=True) for s in samples if name in s.pixels])
            for name in names
        }
        return {key: self._normalised(value) if value.dtype == torch.uint8 else value for key, value in moved.items()}

    def _normalised(self, moved: Tensor) -> Tensor:
        """8-bit pixels as the numbers that the image processor makes of them."""
        assert self._table is not None, "for_bulk leaves pixels as 8-bit values only if there is a table"
        return normalise_uint8(moved, self._table)

    @cached_property
    def _table(self) -> Tensor | None:
        """The table of values in the model's precision, on its device."""
        return None if self.value_table is None else self.value_table.to(self.device, self.model.dtype)

    @cached_property
    def value_table(self) -> Tensor | None:
        """What the image processor makes of each 8-bit value [3, 256], or None if no table can say it."""
        if not table_is_enough(self.image_processor):
            return None
        found = (a.image_inputs(every_value_image())[0]["pixel_values"] for a in (self, self.on_cpu_in_8_bits))
        return value_table(*found)

    @cached_property
    def on_cpu_in_8_bits(self) -> Adapter:
        """The adapter whose pictures are resized on the CPU and normalised on the device."""
        other = copy(self)
        other.image_processor = Uint8Processor(self.image_processor)
        return other

    @cached_property
    def on_device(self) -> Adapter | None:
        """The adapter whose pictures are prepared on the device, if that gives the same numbers as on the CPU."""
        return on_device(self) if self.device.type == "cuda" else None

    @property
    def for_bulk(self) -> Adapter:
        """The adapter that prepares pictures on a GPU, as far as that gives the same numbers as on the CPU."""
        if self.device.type != "cuda" or self.value_table is None:
            return self
        return self.on_device or self.on_cpu_in_8_bits

    @property
    def takes_device_pictures(self) -> bool:
        return isinstance(self.image_processor, DeviceProcessor)

    def uploaded(self, media: Sequence[Picture]) -> Sequence[Picture]:
        """Pictures on the device if the adapter takes them there; clips stay where they are."""
        return [medium if isinstance(medium, LoadedClip) else self._uploaded(medium) for medium in media]

    def frames(self, clip: LoadedClip) -> list[Picture]:
        """The frames of a clip as the image processor takes them."""
        return [self._uploaded(frame) for frame in clip.frames]

    def _uploaded(self, image: Picture) -> Picture:
        if not self.takes_device_pictures:
            return image
        known = isinstance(image, DevicePicture)
        return image.to(self.device) if known else DevicePicture.of(image, self.device)

    def embed(self, batch: Batch) -> Tensor:
        """Token embeddings [B, L, d] in which image features replace the image tokens."""
        embeds: Tensor = self.model.get_input_embeddings()(batch.ids)
        features = self.image_features(batch) if batch.features is None else batch.features
        features = features.to(embeds.device, embeds.dtype).flatten(0, -2)  # the tiles of an image one after another
        flat = embeds.flatten(0, 1).index_copy(0, batch.image_positions.to(embeds.device), features)
        return flat.view_as(embeds)

    def decoder_inputs(self, batch: Batch) -> Inputs:
        """What the decoder is called with for the prompts of a batch: embeddings, positions, masks and all else.

        Every pass over an image goes through here and `read`, so that nothing is left out in any of them.
        """
        return {"inputs_embeds": self.embed(batch), "position_ids": batch.positions, "attention_mask": batch.mask}

    def read(self, inputs: Inputs, cache: Any = None) -> Tensor:
        """Run the decoder once: its final states [B, L, d]."""
        out = self.language_model(**inputs, past_key_values=cache, use_cache=cache is not None)
        return torch.as_tensor(out.last_hidden_state)
