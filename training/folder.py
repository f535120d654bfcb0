"""Writes a trained model as a folder for Hugging Face's Auto classes; it changes no weight but its precision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast

from .families import Family, InternVL, Llava, Qwen2VL

LIMIT = 16_000_000  # bytes a folder may take


def _picture(family: Family) -> dict[str, Any]:
    """The image processor's settings, under the family's own processor class."""
    mean, std = family.norm
    common = {
        "do_convert_rgb": True, "do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": list(mean), "image_std": list(std), "resample": 3,
    }  # fmt: skip
    if isinstance(family, Qwen2VL):
        pixels = {"shortest_edge": 96 * 96, "longest_edge": 256 * 256}
        size = {"patch_size": family.patch, "merge_size": family.merge, "temporal_patch_size": 2, "size": pixels}
        return dict(image_processor_type="Qwen2VLImageProcessor", **common, **size)
    if isinstance(family, Llava):
        square = {"height": family.canvas, "width": family.canvas}
        return dict(
            image_processor_type="CLIPImageProcessor",
            **common,
            size=square,
            do_center_crop=False,
            crop_size=square,
        )
    assert isinstance(family, InternVL)
    square = {"height": family.tile, "width": family.tile}
    tiles = {"crop_to_patches": True, "min_patches": 1, "max_patches": family.most_tiles}
    return dict(image_processor_type="GotOcr2ImageProcessor", **common, size=square, **tiles)


def _processor(family: Family) -> dict[str, Any]:
    if isinstance(family, Llava):
        return {
            "processor_class": "LlavaProcessor", "patch_size": family.patch, "num_additional_image_tokens": 1,
            "vision_feature_select_strategy": "default", "image_token": "<image>",
        }  # fmt: skip
    if isinstance(family, InternVL):
        return {"processor_class": "InternVLProcessor", "image_seq_length": family.tokens_per_tile}
    return {"processor_class": "Qwen2VLProcessor"}


def _video(family: Family) -> dict[str, Any] | None:
    """The official processors of two families insist on a video part; it is given the picture's settings."""
    settings = {k: v for k, v in _picture(family).items() if k != "image_processor_type"}
    if isinstance(family, Qwen2VL):
        return dict(video_processor_type="Qwen2VLVideoProcessor", **settings)
    if isinstance(family, InternVL):
        keep = {k: v for k, v in settings.items() if not k.endswith("patches")}
        return dict(video_processor_type="InternVLVideoProcessor", **keep)
    return None


def save_folder(family: Family, model: Any, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    """The whole folder in bfloat16; refuses one that is larger than the package can carry."""
    out.mkdir(parents=True, exist_ok=True)
    family_class = type(model)
    copy = family_class(model.config)
    copy.load_state_dict(model.state_dict())
    copy = copy.to(torch.bfloat16)
    copy.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
        max_new_tokens=64,
    )
    copy.save_pretrained(out)
    tokenizer.save_pretrained(out)
    files = {
        "preprocessor_config.json": _picture(family),
        "processor_config.json": _processor(family),
        "video_preprocessor_config.json": _video(family),
    }
    for name, content in files.items():
        if content is not None:
            (out / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    size = sum(path.stat().st_size for path in out.iterdir())
    if size > LIMIT:
        raise ValueError(f"{out} takes {size} bytes, more than {LIMIT}: make the model smaller.")
