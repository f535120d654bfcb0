"""What the rest of the package must know of a model family; one subclass per family, each in its own file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import torch
from PIL import Image
from torch import Tensor, nn

from ercr.errors import CheckpointError, InputError
from ercr.image.geometry import Exact, Geometry
from ercr.models.chat import Message, refuse_surrogates, render_chat
from ercr.models.raw import RawProcessor, develop, is_plain, levels, ramp
from ercr.models.replica import replica, survive_forks

ViewKind = Literal["pad", "interpolate"]
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Prepared:
    """One sample as the model takes it, on the CPU: token ids, image tensors and where everything lies."""

    input_ids: Tensor  # [L]
    pixels: dict[str, Tensor]  # the family's own image inputs
    geometry: Geometry
    visual: Tensor  # [N] positions of the visual tokens, in the geometry's order
    prompt: Tensor  # [P] positions of the text the user wrote

    def with_answer(self, answer: Tensor) -> Prepared:
        """The same sample with given answer tokens after the prompt."""
        return replace(self, input_ids=torch.cat([self.input_ids, answer]))


@dataclass(frozen=True)
class Batch:
    """Left-padded samples on the model's device."""

    ids: Tensor  # [B, L]
    mask: Tensor | None  # [B, L], or None where nothing is padded
    positions: Tensor  # rotary positions [B, L] or [3, B, L]
    following: Tensor  # [B, 1] the position of the next token
    images: Tensor  # flat positions in [B * L] that take the image features, in their order
    pixels: dict[str, Tensor]
    shapes: Tensor | None  # the pictures' grids on the host, for families that pack them
    tower: Any  # what such a family's tower needs to know of them
    offsets: tuple[int, ...]  # where each sample begins


class Adapter(ABC):
    """A loaded model with its tokenizer and image processor, behind one face for all families."""

    family: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]
    checkpoints: ClassVar[tuple[str, ...]]  # examples that people use, for `ercr models`

    def __init__(self, model: Any, tokenizer: Any, image_processor: Any, chat_template: str | None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.chat_template = chat_template
        self.config = model.config
        self.compiled: Any = None  # captured passes, where the user asked for them
        self.fused = False  # whether kernels may be used that round differently from the model's own
        self.decode = lru_cache(maxsize=2**16)(self._decode)
        survive_forks()

    # what differs between families

    def takes(self, pixels: dict[str, Tensor]) -> bool:
        """Whether the vision tower takes image tensors of this shape; another family's processor makes others."""
        return True

    @abstractmethod
    def image_inputs(self, image: Image.Image) -> tuple[dict[str, Tensor], Geometry]:
        """The official image processor's tensors and where their tokens lie."""

    @abstractmethod
    def view_inputs(
        self, image: Image.Image, anchor: Geometry, scale: float, kind: ViewKind
    ) -> tuple[dict[str, Tensor], Geometry]:
        """The same for the image shown at another scale."""

    @property
    @abstractmethod
    def image_token(self) -> str:
        """The token that stands once for an image in the chat template and once per visual token in the input."""

    @property
    def image_token_id(self) -> int:
        return int(self.config.image_token_id)

    def expand(self, geometry: Geometry) -> str:
        """The text that replaces the chat template's single image token."""
        return self.image_token * geometry.tokens

    def visual_positions(self, ids: Tensor) -> Tensor:
        """Positions of the tokens that carry a cell of the image."""
        return (ids == self.image_token_id).nonzero()[:, 0]

    def position_ids(self, samples: Sequence[Prepared], mask: Tensor) -> Tensor:
        """Rotary positions [B, L] (or [3, B, L]) of left-padded samples."""
        return (mask.cumsum(-1) - 1).clamp(min=0)

    def extra_inputs(self, ids: Tensor) -> dict[str, Tensor]:
        """Further inputs that follow from the padded token ids."""
        return {}

    def tower_inputs(self, shapes: Tensor) -> Any:
        """What the vision tower would work out from the pictures' grids by asking the device."""
        return None

    def image_features(self, batch: Batch) -> Tensor:
        """The image inputs of a batch as embeddings of its image tokens, in reading order [N, d]."""
        features = self.model.model.get_image_features(**batch.pixels, return_dict=True).pooler_output
        return torch.cat(list(features)) if isinstance(features, list | tuple) else torch.as_tensor(features)

    @contextmanager
    def view_context(self, kind: ViewKind) -> Iterator[None]:
        """Whatever must be switched in the model while a view of this kind runs."""
        yield

    # what all families share

    def apart(self) -> Adapter:
        """The same over modules of its own: what a run hangs on them is seen by no other, and gone with it."""
        other = copy(self)
        vars(other).pop("head", None)
        other.model = replica(self.model)
        return other

    @property
    def body(self) -> nn.Module:
        """The model without its language head."""
        body: nn.Module = self.model.model
        return body

    @property
    def language_model(self) -> Any:
        """The decoder, which takes embeddings and ends in the final norm."""
        return self.model.model.language_model

    @property
    def blocks(self) -> nn.ModuleList:
        blocks: nn.ModuleList = self.model.model.language_model.layers
        return blocks

    @property
    def final_norm(self) -> nn.Module:
        norm: nn.Module = self.model.model.language_model.norm
        return norm

    @cached_property
    def head(self) -> nn.Module:
        """The language head; looking for it takes as long as several launches, and every token needs it."""
        head: nn.Module = self.model.get_output_embeddings()
        return head

    @cached_property
    def unsaid(self) -> Tensor | None:
        """Which tokens [V] the checkpoint's own settings keep from being said (`suppress_tokens`), if any.

        Taken up once, as the weights are: captured steps hold on to it.
        """
        listed = getattr(self.model.generation_config, "suppress_tokens", None)
        if not listed:
            return None
        count: int = self.head.weight.shape[0]  # type: ignore[index, assignment]
        return torch.zeros(count, dtype=torch.bool).index_fill(0, torch.tensor(listed), True).to(self.device)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.get_input_embeddings().weight.device
        return self.model.device if device.type == "meta" else device

    @property
    def mlp_cam_block(self) -> int:
        """The block whose MLP input LLaVA-CAM reads; published for some models, else at nine tenths of the depth.

        Never the last: what its MLP does at visual tokens reaches no later position.
        """
        return max(0, min(round(0.9 * len(self.blocks)), len(self.blocks) - 2))

    def unembedding_rows(self, ids: Tensor) -> Tensor:
        """Rows of W_U [len(ids), d] in the model's own precision, also when the head is offloaded."""
        head: Any = self.head
        if head.weight.device.type != "meta":
            return torch.as_tensor(head.weight.index_select(0, ids.to(head.weight.device)))
        from accelerate.utils import align_module_device

        head = replica(head)  # weights are moved into it and out again
        with align_module_device(head, self.device):
            return torch.as_tensor(head.weight[ids.to(self.device)]).clone()

    @cached_property
    def vocabulary(self) -> int:
        return int(self.config.get_text_config().vocab_size)

    @cached_property
    def plain_tokens(self) -> Tensor:
        """Which of all tokens are not special [V], on the model's device."""
        special = torch.tensor(self.tokenizer.all_special_ids, dtype=torch.long)
        count = 1 + max(self.vocabulary, len(self.tokenizer), *special.tolist())
        plain = torch.ones(count, dtype=torch.bool).index_fill(0, special, False)
        return plain.to(self.device)

    @property
    def image_backend(self) -> str:
        """Which library resized the image: results differ slightly between them."""
        return str(getattr(self.image_processor, "backend", "unknown"))

    def prepare(self, image: Image.Image, messages: Sequence[Message]) -> Prepared:
        """Chat messages and one image to model inputs, equal to the official processor's."""
        pixels, geometry = self.image_inputs(image)
        chat = render_chat(self.tokenizer, self.chat_template, messages, self.image_token, self.expand(geometry))
        if int(chat.ids.max()) >= self.vocabulary:
            raise CheckpointError("The tokenizer knows tokens that the model does not have: they belong to two models.")
        visual = self.visual_positions(chat.ids)
        if len(visual) != geometry.tokens:
            raise InputError(
                f"The prompt holds {len(visual)} image tokens where {geometry.tokens} were expected: "
                f"the chat template must place exactly one image."
            )
        return Prepared(chat.ids, pixels, geometry, visual, chat.text_positions)

    def view(self, image: Image.Image, anchor: Prepared, scale: float, kind: ViewKind) -> Prepared:
        """An auxiliary view: same text before the image, nothing after the last visual token."""
        pixels, geometry = self.view_inputs(image, anchor.geometry, scale, kind)
        first = int((anchor.input_ids == self.image_token_id).nonzero()[0])
        extra = int((anchor.input_ids == self.image_token_id).sum()) - anchor.geometry.tokens
        image_ids = torch.full((geometry.tokens + extra,), self.image_token_id)
        ids = torch.cat([anchor.input_ids[:first], image_ids])
        return Prepared(ids, pixels, geometry, self.visual_positions(ids), ids.new_empty(0))

    def collate(self, samples: Sequence[Prepared], pad_id: int) -> dict[str, Tensor]:
        """One left-padded batch on the model's device."""
        ids, mask, _ = _padded(samples, pad_id)
        inputs = {"input_ids": ids, "attention_mask": mask, **self.extra_inputs(ids)}
        return {key: value.to(self.device) for key, value in inputs.items()} | self._pixels(samples)

    def pack(self, samples: Sequence[Prepared], pad_id: int) -> Batch:
        """The same with everything a pass needs worked out on the host, so that the device is never waited for."""
        ids, mask, offsets = _padded(samples, pad_id)
        positions = self.position_ids(samples, mask)
        images = ((ids == self.image_token_id) & mask.bool()).flatten().nonzero()[:, 0]
        to = self.device
        shapes = [s.pixels["image_grid_thw"] for s in samples if "image_grid_thw" in s.pixels]
        return Batch(
            ids=ids.to(to),
            mask=mask.to(to) if any(offsets) else None,
            positions=positions.to(to),
            following=(positions.reshape(-1, *ids.shape)[..., -1].amax(0)[:, None] + 1).to(to),
            images=images.to(to),
            pixels=self._pixels(samples),
            shapes=torch.cat(shapes) if shapes else None,
            tower=self.tower_inputs(torch.cat(shapes)) if shapes else None,
            offsets=offsets,
        )

    def _pixels(self, samples: Sequence[Prepared]) -> dict[str, Tensor]:
        """Image inputs, joined on the device: they lie in pinned memory where they were prepared in the background."""
        return {key: torch.cat([self._moved(s.pixels[key]) for s in samples]) for key in samples[0].pixels}

    def _moved(self, pixels: Tensor) -> Tensor:
        """Image inputs on the model's device; pictures that came as 8-bit values become numbers there."""
        moved = pixels.to(self.device, non_blocking=True)
        if pixels.dtype != torch.uint8:
            return moved
        table = self.levels
        assert table is not None, "pictures are left raw only where there is a table"
        return develop(moved, table.to(self.device, self.model.dtype))

    @cached_property
    def levels(self) -> Tensor | None:
        """What the image processor makes of each 8-bit value [3, 256], where a table can say it."""
        if not is_plain(self.image_processor):
            return None
        found = (adapter.image_inputs(ramp())[0]["pixel_values"] for adapter in (self, self._raw))
        return levels(*found)

    @cached_property
    def _raw(self) -> Adapter:
        other = copy(self)
        other.image_processor = RawProcessor(self.image_processor)
        return other

    @property
    def in_bulk(self) -> Adapter:
        """The adapter that prepares pictures for a bulk run: on a GPU it leaves the last step to the device."""
        return self._raw if self.device.type == "cuda" and self.levels is not None else self

    def embed(self, batch: Batch) -> Tensor:
        """Token embeddings [B, L, d] with the image features in their places."""
        embeds: Tensor = self.model.get_input_embeddings()(batch.ids)
        features = self.image_features(batch).to(embeds.device, embeds.dtype)
        features = features.flatten(0, -2)  # tiles of a picture follow each other
        flat = embeds.flatten(0, 1).index_copy(0, batch.images.to(embeds.device), features)
        return flat.view_as(embeds)

    def read(self, embeds: Tensor, positions: Tensor, mask: Tensor | None, cache: Any = None) -> Tensor:
        """One pass of the decoder: final states [B, L, d]."""
        out = self.language_model(
            inputs_embeds=embeds,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        return torch.as_tensor(out.last_hidden_state)

    def _decode(self, ids: tuple[int, ...]) -> str:
        """Text of a few tokens, special ones included; `decode` remembers it, since words come again and again."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def encode_answer(self, answer: str) -> Tensor:
        """Token ids of a given answer, as the model would have spoken it."""
        refuse_surrogates(answer, "answer")
        return self.answer_ids(self.tokenizer(answer, add_special_tokens=False)["input_ids"])

    def answer_ids(self, ids: Sequence[int]) -> Tensor:
        """Given token ids of an answer, refused where the model has no such token."""
        if not len(ids):
            raise InputError("The answer to explain is empty: give at least one word.")
        if min(ids) < 0 or max(ids) >= self.vocabulary:
            raise InputError(
                f"An answer's token ids must lie between 0 and {self.vocabulary - 1} for this model, "
                f"not {min(ids) if min(ids) < 0 else max(ids)}."
            )
        return torch.tensor(ids, dtype=torch.long)


def _padded(samples: Sequence[Prepared], pad_id: int) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Left-padded token ids [B, L], a mask of those that are not padding, and where each sample begins."""
    longest = max(len(sample.input_ids) for sample in samples)
    offsets = tuple(longest - len(sample.input_ids) for sample in samples)
    ids = torch.full((len(samples), longest), pad_id)
    mask = torch.ones_like(ids)
    for row, (sample, offset) in enumerate(zip(samples, offsets, strict=True)):
        ids[row, offset:] = sample.input_ids
        mask[row, :offset] = 0
    return ids, mask, offsets


def paste(
    image: Image.Image, canvas: tuple[int, int], content: tuple[int, int], colour: Colour, resample: int
) -> Image.Image:
    """The image resized to `content` (height, width) in the middle of a canvas of plain colour; overflow is cut."""
    scaled = image.resize((content[1], content[0]), resample=Image.Resampling(resample))
    sheet = Image.new("RGB", (canvas[1], canvas[0]), colour)
    sheet.paste(scaled, ((canvas[1] - content[1]) // 2, (canvas[0] - content[0]) // 2))
    return sheet


def paste_box(size: tuple[int, int], canvas: tuple[int, int], content: tuple[int, int]) -> Exact:
    """The rectangle of the original image that a canvas made by `paste` covers."""
    top, left = (canvas[0] - content[0]) // 2, (canvas[1] - content[1]) // 2
    y, x = Fraction(size[0], content[0]), Fraction(size[1], content[1])  # original pixels per canvas pixel
    return (-left * x, -top * y, (canvas[1] - left) * x, (canvas[0] - top) * y)


def mean_colour(image_processor: Any) -> Colour:
    """The colour that becomes zero after normalisation, as nearly as 8 bits allow."""
    red, green, blue = (round(float(channel) * 255) for channel in image_processor.image_mean)
    return red, green, blue
