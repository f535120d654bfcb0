"""The adapter: what the rest of the package must know about a model family; each family is a subclass."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Protocol

import torch
from PIL import Image
from torch import Tensor, nn

from ercr.errors import CheckpointError, InputError, UnsupportedModel
from ercr.image.clips import LoadedClip
from ercr.image.facts import Facts
from ercr.image.geometry import Exact, Geometry
from ercr.image.on_device import DevicePicture
from ercr.image.pieces import AnyGeometry, Piece, pieces_of, together
from ercr.image.sending import sent
from ercr.models.chat import Chat, Message, Placeholder, refuse_placeholders, refuse_surrogates, render_chat
from ercr.models.decoder import blocks_of, decoder_of, final_norm_of
from ercr.models.device_pictures import DeviceProcessor, on_device
from ercr.models.replica import execution_device, hold_hook_lock_while_forking, replica
from ercr.models.uint8_pixels import Uint8Processor, every_value_image, normalise_uint8, table_is_enough, value_table

ViewKind = Literal["pad", "interpolate"]
Colour = tuple[int, int, int]
_FEW_PICTURES = 16  # pictures or tiles up to which a pass of the tower is captured
_ROWS = 8192  # rows of W_U in memory in float32 at once
Inputs = dict[str, Any]  # keyword arguments of the decoder
Picture = Any  # a picture of Pillow's, or one that lies on the device, for an adapter that takes those
Medium = Image.Image | LoadedClip
Media = Medium | Sequence[Medium]  # one picture, or several pictures and clips in the order of their places


@dataclass(frozen=True)
class Prepared:
    """The model's inputs for one conversation and its pictures, on the CPU, with the positions of the visual tokens."""

    input_ids: Tensor  # [L]
    pixels: dict[str, Tensor]  # the family's own inputs of pictures and clips, each joined along its first axis
    geometry: AnyGeometry
    visual: Tensor  # [N] positions of the visual tokens in `input_ids`, in the geometry's order
    prompt: Tensor  # [P] positions of the conversation's own text: no template, no system message
    beside: dict[str, Tensor] = field(default_factory=dict)  # [L] further inputs that have one number per token
    behind: dict[str, int] = field(default_factory=dict)  # what these are for a token of the answer
    messages: tuple[Message, ...] = ()  # the conversation, if a view of the picture has to encode it anew

    @property
    def cells(self) -> bool:
        """Whether there are visual tokens with a place on the picture."""
        return len(self.visual) > 0

    def with_answer(self, answer: Tensor) -> Prepared:
        """The same inputs with the tokens of an answer after the prompt."""
        beside = {
            name: torch.cat([values, values.new_full(answer.shape, self.behind[name])])
            for name, values in self.beside.items()
        }
        return replace(self, input_ids=torch.cat([self.input_ids, answer]), beside=beside)


@dataclass(frozen=True)
class Batch:
    """Left-padded inputs of several samples on the model's device."""

    ids: Tensor  # [B, L]
    mask: Tensor | None  # [B, L], or None where nothing is padded
    positions: Tensor  # rotary positions [B, L] or [3, B, L]
    next_positions: Tensor  # [B, 1] rotary position of the first token after the prompt
    image_positions: Tensor  # flat positions in [B * L] that take the image features, in their order
    pixels: dict[str, Tensor]
    image_grids: (
        Tensor | None
    )  # [n, 3] patches of each picture, then of each clip, if the family packs them; on the CPU
    tower_inputs: Any  # what the vision tower of such a family derives from these grids
    offsets: tuple[int, ...]  # where each sample begins, after its padding
    features: Tensor | None = None  # [N, d] the image features, if they are known from an earlier pass


class CompiledPasses(Protocol):
    """The passes of compile=True; `trace/compiled.py` has them."""

    packs: bool  # whether samples of any lengths share a pass without padding

    def forward(self, batch: Batch) -> Tensor:
        """Final states [B, L, d] of one pass."""

    def speaking(self, rows: int, limit: int, ends: Sequence[int]) -> Any:
        """Greedy decoding of samples that begin and end at different times, as `trace/speaking.py` has it."""

    def done(self, speaking: Any) -> None:
        """Take back what `speaking` gave, for another run."""


class Adapter(ABC):
    """A loaded model with its tokenizer and image processor, with the same interface for all families."""

    family: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]
    checkpoints: ClassVar[tuple[str, ...]]  # well-known examples, listed by `ercr models`
    steps: ClassVar[bool] = True  # whether `trace/greedy.py` decodes; otherwise the model's own `generate` does

    def __init__(
        self, model: Any, tokenizer: Any, image_processor: Any, chat_template: str | None, video_processor: Any = None
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.video_processor = video_processor  # the official one, or what the checkpoint states for it
        self.chat_template = chat_template
        self.config = model.config
        self.compiled: CompiledPasses | None = None  # if the user asked for compile=True
        self.reads_text: bool | None = None  # whether it reads a prompt without its picture; None until it was tried
        self.packed_passes: CompiledPasses | None = None  # of bulk runs, made when the first needs them
        self.graphs: Any = None  # where small passes of the vision tower are captured, with compile=True
        self.decode = lru_cache(maxsize=2**16)(self._decode)
        self._chat = lru_cache(maxsize=256)(self._rendered)
        self.image_ids = lru_cache(maxsize=256)(self._image_ids)
        hold_hook_lock_while_forking()

    # what differs between families

    @property
    def batches(self) -> bool:
        """Whether several samples can share a pass."""
        return True

    def sort(self, sample: Prepared) -> Hashable:
        """What samples must have in common to share a pass."""
        return None

    @classmethod
    def suits(cls, config: Any) -> bool:
        """Whether the adapter is right for a model of one of its types; some types have towers of several kinds."""
        return True

    def takes(self, pixels: dict[str, Tensor]) -> bool:
        """Whether the vision tower takes image tensors of this shape; another family's processor makes others."""
        return True

    @abstractmethod
    def image_inputs(self, image: Picture) -> tuple[dict[str, Tensor], Geometry]:
        """The official image processor's tensors, and where their visual tokens lie on the image."""

    @abstractmethod
    def view_inputs(
        self, image: Picture, anchor: Geometry, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Geometry]:
        """The same for the image shown at another scale."""

    @property
    @abstractmethod
    def image_token(self) -> str:
        """The image token: once per picture in the chat template, and once per visual token in the model's input."""

    @property
    def image_token_id(self) -> int:
        return int(self.config.image_token_id)

    def expand(self, geometry: Geometry) -> str:
        """The text that replaces the chat template's image token of a picture."""
        return self.image_token * geometry.tokens

    def visual_positions(self, ids: Tensor, geometry: Geometry) -> Tensor:
        """Positions of a picture's visual tokens in token ids, in the geometry's order; others have no cell."""
        return (ids == self.image_token_id).nonzero()[:, 0]

    # what differs between families that take clips

    def sample_frames(self, facts: Facts, fps: float | None, num_frames: int | None) -> Sequence[int]:
        """The frames of a video that the family's own rule takes; `fps` and `num_frames` are the user's wishes."""
        raise self._no_clips()

    def clip_inputs(self, clip: LoadedClip) -> tuple[dict[str, Tensor], Piece]:
        """The official video processor's tensors, and where and when their visual tokens lie."""
        raise self._no_clips()

    def clip_view_inputs(
        self, clip: LoadedClip, anchor: Piece, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Piece]:
        """The same for the clip shown at another scale."""
        raise self._no_clips()

    @property
    def video_token(self) -> str | None:
        """What stands for a clip in the chat template."""
        return None

    def expand_clip(self, piece: Piece) -> str:
        """The text that replaces the chat template's token of a clip."""
        return str(self.video_token) * piece.tokens

    def _no_clips(self) -> UnsupportedModel:
        return UnsupportedModel(f"{self.family} takes no videos: give some of their frames as a list of pictures.")

    @property
    def feature_tokens(self) -> tuple[int, ...]:
        """Ids of the tokens that image features replace: first those of pictures, then those of clips."""
        return (self.image_token_id,)

    def position_ids(self, samples: Sequence[Prepared], mask: Tensor) -> Tensor:
        """Rotary positions [B, L] (or [3, B, L]) of left-padded samples."""
        return (mask.cumsum(-1) - 1).clamp(min=0)

    def extra_inputs(self, ids: Tensor) -> dict[str, Tensor]:
        """Further model inputs, computed from the padded token ids."""
        return {}

    def tower_inputs(self, image_grids: Tensor) -> Any:
        """What the vision tower derives from the images' grids, computed here so that the device need not be read."""
        return None

    def image_features(self, batch: Batch) -> Tensor:
        """The image features [N, d] of a batch, in the order of its image tokens."""
        few = all(len(value) <= _FEW_PICTURES for value in batch.pixels.values())
        if self.graphs is None or not few:
            return self._features(**batch.pixels)
        key = ("tower", *((name, tuple(value.shape), value.dtype) for name, value in batch.pixels.items()))
        return torch.as_tensor(self.graphs.run(key, batch.pixels, self._features))

    def _features(self, **pixels: Tensor) -> Tensor:
        features = self.model.model.get_image_features(**pixels, return_dict=True).pooler_output
        return torch.cat(list(features)) if isinstance(features, list | tuple) else torch.as_tensor(features)

    @contextmanager
    def view_context(self, kind: ViewKind) -> Iterator[None]:
        """Changes that the model needs while a view of this kind runs; none by default."""
        yield

    # what all families share

    def on_replica(self) -> Adapter:
        """The same adapter with a replica of the model, so that one run's hooks and patches affect no other run."""
        other = copy(self)
        for name in ("head", "language_model", "blocks", "final_norm"):
            vars(other).pop(name, None)
        other.model = replica(self.model)
        for module in other.model.modules():
            module.training = False  # whatever the mode of the user's model
        return other

    @cached_property
    def language_model(self) -> Any:
        """The decoder, which takes embeddings and ends in the final norm."""
        return decoder_of(self.model)

    @cached_property
    def blocks(self) -> nn.ModuleList:
        return blocks_of(self.language_model)

    @cached_property
    def final_norm(self) -> nn.Module:
        return final_norm_of(self.language_model)

    @property
    def tower(self) -> nn.Module | None:
        """The vision tower, if the family says where it is."""
        found: nn.Module | None = getattr(self.model.model, "vision_tower", None)
        return found

    @cached_property
    def head(self) -> nn.Module:
        """The language head, cached: finding it takes as long as several kernel launches, and every token needs it."""
        head: nn.Module = self.model.get_output_embeddings()
        return head

    @cached_property
    def suppressed_tokens(self) -> Tensor | None:
        """Mask [V] of the tokens that the checkpoint's generation settings forbid (`suppress_tokens`), or None.

        Read once, like the weights, because captured CUDA graphs keep its address.
        """
        listed = getattr(self.model.generation_config, "suppress_tokens", None)
        if not listed:
            return None
        count: int = self.head.weight.shape[0]  # type: ignore[index, assignment]
        return torch.zeros(count, dtype=torch.bool).index_fill(0, torch.tensor(listed), True).to(self.device)

    @property
    def device(self) -> torch.device:
        embedding = self.model.get_input_embeddings()
        device: torch.device = embedding.weight.device
        if device.type != "meta":
            return device
        return execution_device(embedding) or execution_device(self.model) or torch.device("cpu")

    @property
    def mlp_cam_block(self) -> int:
        """The block whose MLP input LLaVA-CAM reads: the published one, or else at 90% of the depth.

        Never the last block: what its MLP does at visual tokens reaches no later position.
        """
        return max(0, min(round(0.9 * len(self.blocks)), len(self.blocks) - 2))

    def unembedding_rows(self, ids: Tensor) -> Tensor:
        """Rows of W_U [len(ids), d] in the model's own precision, also when the head is offloaded."""
        head: Any = self.head
        if head.weight.device.type != "meta":
            return torch.as_tensor(head.weight.index_select(0, ids.to(head.weight.device)))
        from accelerate.utils import align_module_device

        head = replica(head)  # weights are loaded into it and offloaded again
        with align_module_device(head, self.device):
            return torch.as_tensor(head.weight[ids.to(self.device)]).clone()

    @cached_property
    def vocabulary(self) -> int:
        return int(self.config.get_text_config().vocab_size)

    @cached_property
    def plain_tokens(self) -> Tensor:
        """Mask [V] of the tokens that are not special, on the model's device."""
        special = torch.tensor(self.tokenizer.all_special_ids, dtype=torch.long)
        count = 1 + max(self.vocabulary, len(self.tokenizer), *special.tolist())
        plain = torch.ones(count, dtype=torch.bool).index_fill(0, special, False)
        return plain.to(self.device)

    @cached_property
    def letters(self) -> Tensor:
        """How every token is spelt [V, letters], on the model's device; made when it is asked for."""
        from ercr.models.letters import letters

        return letters(self.tokenizer, self.vocabulary).to(self.device)

    @cached_property
    def mean_row(self) -> Tensor:
        """The mean [d] of the rows of W_U of all words, in float32; made when it is asked for."""
        with torch.no_grad():
            parts = torch.split(torch.arange(self.vocabulary, device=self.device), _ROWS)
            total = torch.stack([self.unembedding_rows(ids).float().sum(0) for ids in parts]).sum(0)
        return total / self.vocabulary

    @property
    def image_backend(self) -> str:
        """The library that resizes images; results differ slightly between libraries."""
        return str(getattr(self.image_processor, "backend", "unknown"))

    @property
    def neutral_colour(self) -> Colour:
        """The 8-bit colour nearest to what the image processor turns into zeros."""
        return mean_colour(self.image_processor)

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

    def uploaded(self, media: Sequence[Medium]) -> Sequence[Picture]:
        """Pictures on the device if the adapter takes them there; clips stay where they are."""
        return [self._uploaded(medium) if isinstance(medium, Image.Image) else medium for medium in media]

    def frames(self, clip: LoadedClip) -> list[Picture]:
        """The frames of a clip as the image processor takes them."""
        return [self._uploaded(frame) for frame in clip.frames]

    def _uploaded(self, image: Image.Image) -> Picture:
        return DevicePicture.of(image, self.device) if self.takes_device_pictures else image

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

    def adjust(self, logits: Tensor) -> Tensor:
        """The head's output as the model's own logits; some families scale or cap them."""
        return logits

    def _decode(self, ids: tuple[int, ...]) -> str:
        """Text of a few tokens, special ones included; `decode` caches it, because the same words come often."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode_answer(self, answer: str) -> Tensor:
        """Token ids of a given answer, as the model would have generated them."""
        refuse_surrogates(answer, "answer")
        return self.answer_ids(self.tokenizer(answer, add_special_tokens=False)["input_ids"])

    def answer_ids(self, ids: Sequence[int]) -> Tensor:
        """Given token ids of an answer as a tensor; ids that the model does not have are refused."""
        if not len(ids):
            raise InputError("The answer to explain is empty: give at least one word.")
        if min(ids) < 0 or max(ids) >= self.vocabulary:
            raise InputError(
                f"An answer's token ids must lie between 0 and {self.vocabulary - 1} for this model, "
                f"not {min(ids) if min(ids) < 0 else max(ids)}."
            )
        return torch.tensor(ids, dtype=torch.long)


def as_media(media: Media) -> Sequence[Medium]:
    """Pictures and clips as a list, also where one picture is given."""
    return media if isinstance(media, list | tuple) else (media,)


def joined_pixels(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Inputs of several pictures and clips, each joined along its first axis."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: torch.cat([torch.as_tensor(part[name]) for part in parts if name in part]) for name in names}


def padded(samples: Sequence[Prepared], pad_id: int) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Left-padded token ids [B, L], the attention mask [B, L], and the padding before each sample."""
    longest = max(len(sample.input_ids) for sample in samples)
    offsets = tuple(longest - len(sample.input_ids) for sample in samples)
    ids = torch.full((len(samples), longest), pad_id)
    mask = torch.ones_like(ids)
    for row, (sample, offset) in enumerate(zip(samples, offsets, strict=True)):
        ids[row, offset:] = sample.input_ids
        mask[row, :offset] = 0
    return ids, mask, offsets


def paste(image: Picture, canvas: tuple[int, int], content: tuple[int, int], colour: Colour, resample: int) -> Picture:
    """The image resized to `content` (height, width), centred on a canvas of one colour; the overflow is cut off."""
    scaled = image.resize((content[1], content[0]), resample=Image.Resampling(resample))
    if isinstance(scaled, DevicePicture):
        return scaled.pasted(canvas, colour)
    sheet = Image.new("RGB", (canvas[1], canvas[0]), colour)
    sheet.paste(scaled, ((canvas[1] - content[1]) // 2, (canvas[0] - content[0]) // 2))
    return sheet


def paste_box(size: tuple[int, int], canvas: tuple[int, int], content: tuple[int, int]) -> Exact:
    """The rectangle of the original image that a canvas made by `paste` covers."""
    top, left = (canvas[0] - content[0]) // 2, (canvas[1] - content[1]) // 2
    y, x = Fraction(size[0], content[0]), Fraction(size[1], content[1])  # original pixels per canvas pixel
    return (-left * x, -top * y, (canvas[1] - left) * x, (canvas[0] - top) * y)


def mean_colour(image_processor: Any) -> Colour:
    """The 8-bit colour nearest to what normalisation turns into zero."""
    red, green, blue = (round(float(channel) * 255) for channel in image_processor.image_mean)
    return red, green, blue
