"""Whole models with random weights in published shapes: a model and its official processor, which needs torchvision."""

from __future__ import annotations

from typing import Any

import torch

from ercr.benchmark.shapes import SHAPES, tokenizer


def whole(shape: str, device: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """The model, which has no end token, so answers have full length, and its processor."""
    from transformers import AutoModelForImageTextToText

    config, processor = _smolvlm_500m() if shape == "smolvlm-500m" else _with_processor(shape)
    with torch.device(device):
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(config, dtype=dtype).eval()
    model.tie_weights()
    model.generation_config.pad_token_id = processor.tokenizer.pad_token_id
    model.generation_config.eos_token_id = None
    return model, processor


def _with_processor(shape: str) -> tuple[Any, Any]:
    import transformers

    config, words, pictures = SHAPES[shape]()
    kind = {"qwen2_vl": "Qwen2VL", "llava": "Llava", "internvl": "InternVL"}[config.model_type]
    options: dict[str, Any] = {"chat_template": words.chat_template}
    if kind == "Qwen2VL":
        options["video_processor"] = transformers.Qwen2VLVideoProcessor()
    elif kind == "InternVL":
        options["video_processor"] = transformers.InternVLVideoProcessor()
    else:
        options |= {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    return config, getattr(transformers, f"{kind}Processor")(pictures, words, **options)


def _smolvlm_500m() -> tuple[Any, Any]:
    from transformers import SmolVLMConfig, SmolVLMImageProcessor, SmolVLMProcessor, SmolVLMVideoProcessor
    from transformers.models.smolvlm import processing_smolvlm

    if processing_smolvlm.num2words is None:
        processing_smolvlm.num2words = str  # it spells the number of frames of a video, and there is none

    named = {
        "image_token": "<image>",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
        "end_of_utterance_token": "<end_of_utterance>",
    }
    words = tokenizer("<image>", "<image>", named)
    config = SmolVLMConfig(
        text_config={
            "model_type": "llama",
            "vocab_size": 49280,
            "hidden_size": 960,
            "intermediate_size": 2560,
            "num_hidden_layers": 32,
            "num_attention_heads": 15,
            "num_key_value_heads": 5,
            "head_dim": 64,
            "max_position_embeddings": 8192,
        },
        vision_config={
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 512,
            "patch_size": 16,
        },
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=4,
        tie_word_embeddings=False,
    )
    edges: dict[str, Any] = {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}
    pictures, clips = SmolVLMImageProcessor(**edges), SmolVLMVideoProcessor(**edges)
    return config, SmolVLMProcessor(pictures, words, clips, image_seq_len=64, chat_template=words.chat_template)
