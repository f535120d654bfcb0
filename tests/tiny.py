"""Tiny random-weight checkpoints of every family, made from configs in the families' own classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

CORPUS = [
    "a photo of a dog and a cat on a sofa .",
    "Describe this image. What is in the picture? Write a one-sentence caption for this image:",
    "there are two umbrellas near the red bicycle , it is raining .",
    "user assistant system USER: ASSISTANT: You are a helpful assistant.",
]

QWEN_TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif c['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for m in messages %}{{ m['role'].upper() }}: {% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<image>\n{% endif %}{% endfor %}{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }} "
    "{% endif %}{% endfor %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
INTERN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<IMG_CONTEXT>\n{% elif c['type'] == 'video' %}<video>\n"
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(
    specials: dict[str, str], template: str | None, named: dict[str, str] | None = None, bos: str | None = None
) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    words = ["<pad>", *specials.values(), *(named or {}).values()]
    if bos:
        words.append(bos)
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=words, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tok.train_from_iterator(CORPUS * 4, trainer)
    if bos:
        tok.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tok.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok,
        pad_token="<pad>",
        eos_token=specials["eos"],
        bos_token=bos,
        chat_template=template,
        padding_side="left",
        additional_special_tokens=[w for w in words if w not in ("<pad>", specials["eos"], bos)],
        extra_special_tokens=named or {},
    )


def _text(tok: Any, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tok),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": None,
        "eos_token_id": tok.eos_token_id,
        "pad_token_id": tok.pad_token_id,
        **more,
    }


def qwen2_vl(five: bool = False) -> tuple[Any, Any, Any]:
    from transformers import Qwen2_5_VLConfig, Qwen2VLConfig
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tok = tokenizer(
        {
            "start": "<|im_start|>",
            "eos": "<|im_end|>",
            "vs": "<|vision_start|>",
            "ve": "<|vision_end|>",
            "vid": "<|video_pad|>",
        },
        QWEN_TEMPLATE,
        {"image_token": "<|image_pad|>"},
    )
    ids = {
        n: tok.convert_tokens_to_ids(t)
        for n, t in (
            ("image_token_id", "<|image_pad|>"),
            ("video_token_id", "<|video_pad|>"),
            ("vision_start_token_id", "<|vision_start|>"),
            ("vision_end_token_id", "<|vision_end|>"),
        )
    }
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e4}
    vision: dict[str, Any] = {
        "depth": 2,
        "num_heads": 4,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    if five:
        vision |= {
            "hidden_size": 64,
            "out_hidden_size": 64,
            "intermediate_size": 96,
            "window_size": 16,
            "fullatt_block_indexes": [1],
        }
    else:
        vision |= {"embed_dim": 64, "hidden_size": 64, "mlp_ratio": 2}
    config = (Qwen2_5_VLConfig if five else Qwen2VLConfig)(
        text_config=_text(tok, rope_parameters=rope), vision_config=vision, tie_word_embeddings=True, **ids
    )
    processor = Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, min_pixels=16 * 16, max_pixels=160 * 160)
    return config, tok, processor


def llava(pad: bool = False) -> tuple[Any, Any, Any]:
    from transformers import LlavaConfig
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    tok = tokenizer({"eos": "</s>"}, LLAVA_TEMPLATE, {"image_token": "<image>"}, bos="<s>")
    config = LlavaConfig(
        text_config={"model_type": "llama", **_text(tok)},
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "image_size": 48,
            "patch_size": 4,
            "projection_dim": 32,
        },
        image_token_id=tok.convert_tokens_to_ids("<image>"),
        image_seq_length=144,
        tie_word_embeddings=False,
    )
    processor = LlavaImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48}, do_pad=pad)
    return config, tok, processor


def internvl(tiles: int = 6, text: str = "qwen2") -> tuple[Any, Any, Any]:
    from transformers import InternVLConfig
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    tok = tokenizer(
        {"start": "<|im_start|>", "eos": "<|im_end|>"},
        INTERN_TEMPLATE,
        {
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
    )
    config = InternVLConfig(
        text_config={"model_type": text, **_text(tok, head_dim=16)},
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": [64, 64],
            "patch_size": [4, 4],
        },
        image_token_id=tok.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=64,
        tie_word_embeddings=True,
    )
    processor = GotOcr2ImageProcessorPil(size={"height": 64, "width": 64}, min_patches=1, max_patches=tiles)
    return config, tok, processor


MAKERS = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": lambda: qwen2_vl(five=True),
    "llava": llava,
    "llava_pad": lambda: llava(pad=True),
    "internvl": internvl,
    "internvl_single": lambda: internvl(tiles=1),
    "internvl35": lambda: internvl(text="qwen3"),
}


def build(name: str, folder: Path, seed: int = 0) -> Path:
    """Write a checkpoint folder for one of `MAKERS`."""
    from transformers import AutoModelForImageTextToText
    from transformers.utils import logging

    logging.disable_progress_bar()
    config, tok, processor = MAKERS[name]()
    torch.manual_seed(seed)
    model = AutoModelForImageTextToText.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)  # the default 0.02 gives states too alike to tell cells apart
    model.generation_config.eos_token_id = tok.eos_token_id
    model.generation_config.pad_token_id = tok.pad_token_id
    model.save_pretrained(folder)
    tok.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
