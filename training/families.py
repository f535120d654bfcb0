"""The three families as small models: their shapes, their inputs and their decoding.

Everything is the family's own Hugging Face class. Only the order of work differs from its `forward`:
a batch here holds pictures of one size, so positions are computed once and vision attention runs over the batch.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    InternVLConfig,
    InternVLForConditionalGeneration,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
)
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas
from transformers.vision_utils import get_vision_position_ids

from .tokens import Speech

WIDTH = 256
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% elif part['type'] == 'video' %}VIDEO"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_VICUNA = (
    "{% for message in messages %}{% if message['role'] == 'user' %}USER: "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\n{% endif %}{% endfor %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% endif %} {% else %}ASSISTANT: "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)


@dataclass(frozen=True)
class Seen:
    """A batch of pictures as a family takes it, and what each visual token covers."""

    pixels: Tensor | None  # None where only the cells matter
    cells: Tensor  # [B, N, maps], the mean of every map over each visual token's part of the picture
    corners: Tensor  # [N, 2] centre of each token in its grid, both axes in 0..1
    grid: tuple[int, ...]


class Family(ABC):
    """What training must know of a family."""

    name: ClassVar[str]
    speech: ClassVar[Speech]
    norm: ClassVar[tuple[tuple[float, ...], tuple[float, ...]]]
    fixed_canvas: ClassVar[bool]

    @abstractmethod
    def build(self, tokenizer: PreTrainedTokenizerFast) -> Any:
        """An untrained model."""

    cell: ClassVar[int]  # side of a visual token's square on the canvas, in pixels

    @abstractmethod
    def cells(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of visual tokens over a picture of this size, as the image processor cuts it."""

    @abstractmethod
    def look(self, pictures: Tensor | None, maps: Tensor) -> Seen:
        """Pictures [B, 3, rows * cell, columns * cell] and maps [B, M, rows, columns] as the family's tokens."""

    @abstractmethod
    def see(self, model: Any, seen: Seen) -> Tensor:
        """The visual tokens [B, N, WIDTH] that enter the language model."""

    @abstractmethod
    def blocks(self, model: Any) -> list[nn.Module]:
        """The vision tower's blocks."""

    def positions(self, before: int, seen: Seen, total: int, device: torch.device) -> Tensor:
        """Position ids, broadcast over the batch."""
        return torch.arange(total, device=device)[None]

    def normalize(self, pictures: Tensor) -> Tensor:
        mean, std = (torch.tensor(v, device=pictures.device)[:, None, None] for v in self.norm)
        return torch.addcmul((-mean / std).to(pictures.dtype), pictures, (1 / std).to(pictures.dtype)).bfloat16()


def language(model: Any, embeds: Tensor, positions: Tensor) -> Tensor:
    """Final hidden states. Padding stands on the right, so a plain causal pass needs no mask."""
    decoder = model.model.language_model
    rotary = decoder.rotary_emb(embeds, positions)
    hidden = embeds
    for layer in decoder.layers:
        hidden = layer(hidden, attention_mask=None, position_embeddings=rotary)
    return decoder.norm(hidden)


def _text(tokenizer: PreTrainedTokenizerFast, **more: Any) -> dict[str, Any]:
    return dict(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=640,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **more,
    )


def _flat(maps: Tensor) -> Tensor:
    """Maps [B, M, rows, columns] as [B, N, M], cells in reading order."""
    return maps.flatten(2).transpose(1, 2)


def _centres(rows: int, columns: int, device: torch.device) -> Tensor:
    y = (torch.arange(rows, device=device) + 0.5) / rows
    x = (torch.arange(columns, device=device) + 0.5) / columns
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), -1).flatten(0, 1)


class Qwen2VL(Family):
    name = "qwen2vl"
    norm = _CLIP
    fixed_canvas = False
    patch, merge, cell = 8, 2, 16
    speech = Speech(
        specials=(
            *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"),
            *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
        ),
        before="<|im_start|>user\n<|vision_start|>",
        image="<|image_pad|>",
        after="<|vision_end|>{prompt}<|im_end|>\n<|im_start|>assistant\n",
        lead="",
        end="<|im_end|>",
        pad="<|endoftext|>",
        template=_CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>").replace(
            "VIDEO", "<|vision_start|><|video_pad|><|vision_end|>"
        ),
        named={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
    )

    def build(self, tokenizer: PreTrainedTokenizerFast) -> Any:
        token = tokenizer.convert_tokens_to_ids
        rope = {"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 10000.0}
        config = Qwen2VLConfig(
            text_config=_text(tokenizer, rope_parameters=rope),
            vision_config={
                "depth": 6, "embed_dim": 192, "hidden_size": WIDTH, "num_heads": 3, "mlp_ratio": 4,
                "patch_size": self.patch, "spatial_merge_size": self.merge, "temporal_patch_size": 2,
            },
            image_token_id=token("<|image_pad|>"),
            video_token_id=token("<|video_pad|>"),
            vision_start_token_id=token("<|vision_start|>"),
            vision_end_token_id=token("<|vision_end|>"),
            tie_word_embeddings=True,
        )  # fmt: skip
        return Qwen2VLForConditionalGeneration(config)

    def blocks(self, model: Any) -> list[nn.Module]:
        return list(model.model.visual.blocks)

    def cells(self, width: int, height: int) -> tuple[int, int]:
        return max(2, round(height / self.cell)), max(2, round(width / self.cell))

    def look(self, pictures: Tensor | None, maps: Tensor) -> Seen:
        rows, columns = maps.shape[-2:]
        pixels = None if pictures is None else self._patches(self.normalize(pictures), rows, columns)
        return Seen(pixels, _flat(maps), _centres(rows, columns, maps.device), (rows, columns))

    def _patches(self, x: Tensor, rows: int, columns: int) -> Tensor:
        x = self._cut(x, rows, columns)[:, :, :, :, :, :, None].expand(-1, -1, -1, -1, -1, -1, 2, -1, -1)
        return x.reshape(len(x), rows * columns * self.merge**2, -1)

    def _cut(self, x: Tensor, rows: int, columns: int) -> Tensor:
        """Pictures as patches [B, rows, columns, merge, merge, 3, patch, patch]."""
        x = x.reshape(len(x), 3, rows, self.merge, self.patch, columns, self.merge, self.patch)
        return x.permute(0, 2, 5, 3, 6, 1, 4, 7)

    def patches_of_clips(self, frames: Tensor, rows: int, columns: int, together: int) -> Tensor:
        """Frames [B * together, 3, H, W] as patches of so many frames together [B, patches, values]."""
        x = self._cut(self.normalize(frames), rows, columns)
        x = x.unflatten(0, (-1, together)).movedim(1, 6)
        return x.reshape(len(x), rows * columns * self.merge**2, -1)

    def see(self, model: Any, seen: Seen) -> Tensor:
        assert seen.pixels is not None
        visual = model.model.visual
        for block in visual.blocks:
            if "forward" not in vars(block.attn):
                block.attn.forward = types.MethodType(_batched_attention, block.attn)
        rows, columns = (edge * self.merge for edge in seen.grid)
        places = get_vision_position_ids(torch.tensor([[1, rows, columns]]), self.merge).to(seen.pixels.device)
        # The patch embedding is a convolution whose window is the whole patch: a matrix product says the same.
        hidden = F.linear(seen.pixels, visual.patch_embed.proj.weight.flatten(1))
        rotary = tuple(part[:, None].to(hidden.dtype) for part in visual.rotary_pos_emb(hidden, places))
        for block in visual.blocks:
            hidden = block(hidden, cu_seqlens=None, position_embeddings=rotary)
        return visual.merger(hidden).reshape(len(hidden), -1, WIDTH)

    def positions(self, before: int, seen: Seen, total: int, device: torch.device) -> Tensor:
        rows, columns = seen.grid
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        image = torch.stack([torch.zeros(rows * columns), y.flatten(), x.flatten()]).long() + before
        rest = torch.arange(total - before - rows * columns) + before + max(rows, columns)
        text = torch.arange(before).expand(3, -1)
        return torch.cat([text, image, rest.expand(3, -1)], 1)[:, None].to(device)


def _batched_attention(self: Any, hidden_states: Tensor, position_embeddings: Any = None, **_: Any) -> Tensor:
    """Qwen2-VL's vision attention for pictures of one size [B, N, width]: one call instead of one per picture."""
    count, length, _width = hidden_states.shape
    qkv = self.qkv(hidden_states).reshape(count, length, 3, self.num_heads, -1)
    cos, sin = position_embeddings
    q, k = (_turn(part, cos, sin).transpose(1, 2) for part in qkv[:, :, :2].unbind(2))
    mixed = F.scaled_dot_product_attention(q, k, qkv[:, :, 2].transpose(1, 2))
    return self.proj(mixed.transpose(1, 2).reshape(count, length, -1))


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat([-two, one], -1) * sin


class Llava(Family):
    name = "llava"
    norm = _CLIP
    fixed_canvas = True
    canvas, patch, cell = 224, 14, 14
    speech = Speech(
        specials=("<unk>", "<s>", "</s>", "<pad>", "<image>"),
        before="USER: ",
        image="<image>",
        after="\n{prompt} ASSISTANT:",
        lead=" ",
        end="</s>",
        pad="<pad>",
        template=_VICUNA,
        named={"image_token": "<image>"},
    )

    def build(self, tokenizer: PreTrainedTokenizerFast) -> Any:
        config = LlavaConfig(
            text_config=_text(tokenizer, model_type="llama", head_dim=64, rope_parameters=dict(_ROPE)),
            vision_config={
                "model_type": "clip_vision_model", "hidden_size": WIDTH, "intermediate_size": 768,
                "num_hidden_layers": 5, "num_attention_heads": 4, "image_size": self.canvas, "patch_size": self.patch,
                "projection_dim": WIDTH,
            },
            image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
            image_seq_length=(self.canvas // self.patch) ** 2,
            vision_feature_layer=-1,
            vision_feature_select_strategy="default",
            tie_word_embeddings=True,
        )  # fmt: skip
        return LlavaForConditionalGeneration(config)

    def cells(self, width: int, height: int) -> tuple[int, int]:
        return self.canvas // self.patch, self.canvas // self.patch

    def look(self, pictures: Tensor | None, maps: Tensor) -> Seen:
        rows, columns = maps.shape[-2:]
        pixels = None if pictures is None else self.normalize(pictures)
        return Seen(pixels, _flat(maps), _centres(rows, columns, maps.device), (rows, columns))

    def blocks(self, model: Any) -> list[nn.Module]:
        tower = model.model.vision_tower
        return list(getattr(tower, "vision_model", tower).encoder.layers)

    def see(self, model: Any, seen: Seen) -> Tensor:
        features = model.model.vision_tower(pixel_values=seen.pixels).last_hidden_state[:, 1:]
        return model.model.multi_modal_projector(features)


class InternVL(Family):
    name = "internvl"
    norm = _IMAGENET
    fixed_canvas = True
    tile, patch, most_tiles, cell = 112, 8, 4, 16
    speech = Speech(
        specials=(
            *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
            *("<unk>",),
        ),
        before="<|im_start|>user\n<img>",
        image="<IMG_CONTEXT>",
        after="</img>\n{prompt}<|im_end|>\n<|im_start|>assistant\n",
        lead="",
        end="<|im_end|>",
        pad="<|endoftext|>",
        template=_CHATML.replace("IMAGE", "<IMG_CONTEXT>\n").replace("VIDEO", "<video>\n"),
        named={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
    )

    @property
    def tokens_per_tile(self) -> int:
        return (self.tile // self.patch // 2) ** 2

    def build(self, tokenizer: PreTrainedTokenizerFast) -> Any:
        config = InternVLConfig(
            text_config=_text(tokenizer, model_type="qwen2", rope_parameters=dict(_ROPE)),
            vision_config={
                "hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 3,
                "image_size": [self.tile, self.tile], "patch_size": [self.patch, self.patch],
                "layer_scale_init_value": 1.0,
            },
            image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
            image_seq_length=self.tokens_per_tile,
            tie_word_embeddings=True,
        )  # fmt: skip
        return InternVLForConditionalGeneration(config)

    def cells(self, width: int, height: int) -> tuple[int, int]:
        columns, rows = get_optimal_tiled_canvas((height, width), (self.tile, self.tile), 1, self.most_tiles)
        side = self.tile // self.cell
        return rows * side, columns * side

    def look(self, pictures: Tensor | None, maps: Tensor) -> Seen:
        side = self.tile // self.cell
        rows, columns = (edge // side for edge in maps.shape[-2:])
        centres = _centres(side, side, maps.device)
        if rows * columns == 1:
            pixels = None if pictures is None else self.normalize(pictures)[:, None]
            return Seen(pixels, _flat(maps), centres, (1, 1))
        cells = _tiles(maps, rows, columns).permute(0, 1, 3, 4, 2).flatten(1, 3)
        cells = torch.cat([cells, _flat(F.avg_pool2d(maps, (rows, columns)))], 1)
        pixels = None
        if pictures is not None:
            large = self.normalize(pictures)
            thumbnail = F.avg_pool2d(large, (rows, columns))
            pixels = torch.cat([_tiles(large, rows, columns), thumbnail[:, None]], 1)
        return Seen(pixels, cells, centres.repeat(rows * columns + 1, 1), (rows, columns))

    def blocks(self, model: Any) -> list[nn.Module]:
        return list(model.model.vision_tower.encoder.layer)

    def see(self, model: Any, seen: Seen) -> Tensor:
        assert seen.pixels is not None
        features = model.model.get_image_features(pixel_values=seen.pixels.flatten(0, 1)).pooler_output
        return features.reshape(len(seen.pixels), -1, WIDTH)


def _tiles(pictures: Tensor, rows: int, columns: int) -> Tensor:
    """[B, C, H, W] cut into [B, rows * columns, C, h, w], in reading order."""
    count, channels, height, width = pictures.shape
    cut = pictures.reshape(count, channels, rows, height // rows, columns, width // columns)
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)


FAMILIES: dict[str, Family] = {family.name: family for family in (Qwen2VL(), Llava(), InternVL())}
