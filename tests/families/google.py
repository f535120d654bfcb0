"""Tiny PaliGemma and Gemma: SigLIP or its successor in front of a decoder that lets the picture see both ways."""

from __future__ import annotations

from typing import Any

from tests.families.registry import family
from tests.tiny import tokenizer

CONTENT = (
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}IMAGE{% else %}{{ c['text'] | trim }}{% endif %}{% endfor %}{% endif %}"
)


def _text(kind: str, tok: Any, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind,
        "vocab_size": len(tok),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 4096,
        "bos_token_id": tok.bos_token_id,
        "eos_token_id": tok.eos_token_id,
        "pad_token_id": tok.pad_token_id,
        **more,
    }


def _siglip(size: int, patch: int) -> dict[str, Any]:
    return {
        "model_type": "siglip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": size,
        "patch_size": patch,
        "vision_use_head": False,
    }


# No template is published: the prompt is a task such as "caption en". The processor itself puts the image in front and
# adds the beginning of the text and a line break.
def _paligemma(kind: str, **text: Any) -> tuple[Any, Any]:
    from transformers import PaliGemmaConfig, PaliGemmaProcessor
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    size, patch = 48, 6
    tok = tokenizer({"eos": "<eos>"}, None, {"image_token": "<image>"}, bos="<bos>")
    images = SiglipImageProcessorPil(size={"height": size, "width": size}, image_seq_length=(size // patch) ** 2)
    processor = PaliGemmaProcessor(images, tok)  # adds the tokens of places and segments
    config = PaliGemmaConfig(
        text_config=_text(kind, tok, **text),
        vision_config=_siglip(size, patch),
        image_token_index=tok.image_token_id,
        projection_dim=64,
        hidden_size=64,
        bos_token_id=tok.bos_token_id,
        eos_token_id=tok.eos_token_id,
        pad_token_id=tok.pad_token_id,
    )
    return config, processor


@family("PaliGemma", "google/paligemma-3b-pt-224")
def paligemma() -> tuple[Any, Any]:
    return _paligemma("gemma", num_key_value_heads=1)


@family("PaliGemma 2", "google/paligemma2-3b-pt-224")
def paligemma2() -> tuple[Any, Any]:
    return _paligemma("gemma2", query_pre_attn_scalar=16, sliding_window=4096)


# The system message has no turn of its own: it opens the first turn of the user.
GEMMA3 = (
    "{{ bos_token }}{% set ns = namespace(opening='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{% set ns.opening %}" + CONTENT.replace("IMAGE", "") + "{{ '\n\n' }}{% endset %}{% else %}"
    "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ ns.opening }}"
    "{% set ns.opening = '' %}" + CONTENT.replace("IMAGE", "<start_of_image>") + "<end_of_turn>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def _gemma3(**calls: Any) -> tuple[Any, Any]:
    from transformers import Gemma3Config, Gemma3Processor
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    size, patch, pooled = 96, 4, 6  # 24 x 24 patches, pooled by 4 as 64 x 64 are
    tok = tokenizer(
        {"eos": "<eos>", "start": "<start_of_turn>", "end": "<end_of_turn>"},
        GEMMA3,
        {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
        bos="<bos>",
    )
    # Gemma3Processor calls its image processor with defaults of its own, whatever that one was saved with (users give
    # pan and scan at the call). What the tokenizer was saved with is the one thing in a folder that precedes them.
    tok.init_kwargs |= calls
    text = _text(
        "gemma3_text",
        tok,
        query_pre_attn_scalar=16,
        sliding_window=48,  # a picture fits, a long prompt does not: as 1024 does with pictures of 256
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        },
    )
    config = Gemma3Config(
        text_config=text,
        vision_config=_siglip(size, patch),
        mm_tokens_per_image=pooled**2,
        image_token_index=tok.image_token_id,
        boi_token_index=tok.boi_token_id,
        eoi_token_index=tok.eoi_token_id,
    )
    processor = Gemma3Processor(
        Gemma3ImageProcessorPil(size={"height": size, "width": size}, **calls),
        tok,
        chat_template=GEMMA3,
        image_seq_length=pooled**2,
    )
    return config, processor


@family("Gemma 3", "google/gemma-3-4b-it")
def gemma3() -> tuple[Any, Any]:
    return _gemma3()


@family("Gemma 3 with pan and scan", "google/gemma-3-4b-it")
def gemma3_pan_and_scan() -> tuple[Any, Any]:
    return _gemma3(
        do_pan_and_scan=True,
        pan_and_scan_min_crop_size=32,
        pan_and_scan_max_num_crops=4,
        pan_and_scan_min_ratio_to_activate=1.2,
    )


# Content in its order, a turn for the system message.
GEMMA4 = (
    "{{ bos_token }}{% for m in messages %}<|turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}{{ '\n' }}"
    + CONTENT.replace("IMAGE", "<|image|>")
    + "<turn|>{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<|turn>model{{ '\n' }}THOUGHT{% endif %}"
)


def _gemma4(thought: str, audio: bool, vision: dict[str, Any], **text: Any) -> tuple[Any, Any]:
    from transformers import Gemma4AudioFeatureExtractor, Gemma4Config, Gemma4Processor, Gemma4VideoProcessor
    from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

    named = {"boi": "<|image>", "eoi": "<image|>", "image": "<|image|>"}
    named |= {"boa": "<|audio>", "eoa": "<audio|>", "audio": "<|audio|>"}
    words = {"start": "<|turn>", "end": "<turn|>", "think": "<|channel>", "thought": "<channel|>", "video": "<|video|>"}
    template = GEMMA4.replace("THOUGHT", thought)
    tok = tokenizer({"eos": "<eos>", **words}, template, {f"{n}_token": w for n, w in named.items()}, bos="<bos>")
    pixels = {"patch_size": 4, "pooling_kernel_size": 3, "max_soft_tokens": 70}  # the smallest budget that is allowed
    processor = Gemma4Processor(
        Gemma4AudioFeatureExtractor(),
        Gemma4ImageProcessorPil(**pixels),
        tok,
        Gemma4VideoProcessor(**pixels),
        chat_template=template,
        image_seq_length=70,
    )
    config = Gemma4Config(
        text_config=_text(
            "gemma4_text",
            tok,
            global_head_dim=32,  # twice as wide in the full layers, with a quarter of it turned
            sliding_window=48,
            final_logit_softcapping=30.0,
            vocab_size_per_layer_input=len(tok),
            **text,
        ),
        vision_config={
            "model_type": "gemma4_vision",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 16,
            "patch_size": 4,
            "pooling_kernel_size": 3,
            "position_embedding_size": 640,  # 70 x 9 patches in one row fit
            **vision,
        },
        audio_config={"model_type": "gemma4_audio", **AUDIO} if audio else None,
        **{f"{name}_token_id": tok.convert_tokens_to_ids(word) for name, word in named.items() if name != "eoa"},
        eoa_token_index=tok.eoa_token_id,
        video_token_id=processor.video_token_id,
    )
    return config, processor


AUDIO = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "subsampling_conv_channels": [8, 4],
    "output_proj_dims": 64,
}
SLIDING, FULL = "sliding_attention", "full_attention"


@family("Gemma 4 E4B", "google/gemma-4-E4B-it")
def gemma4() -> tuple[Any, Any]:
    """Causal throughout; inputs of their own for every layer; the last layers share keys and values."""
    return _gemma4(
        "",
        True,
        {"use_clipped_linears": True},
        num_hidden_layers=4,
        layer_types=[SLIDING, FULL, SLIDING, FULL],
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=16,
    )


@family("Gemma 4 31B", "google/gemma-4-31B-it")
def gemma4_31b() -> tuple[Any, Any]:
    """Pictures see both ways in the sliding layers; keys are values in the full ones."""
    return _gemma4(
        "<|channel>thought{{ '\n' }}<channel|>",
        False,
        {"standardize": True},
        layer_types=[SLIDING, SLIDING, FULL],
        use_bidirectional_attention="vision",
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        hidden_size_per_layer_input=0,
    )


@family("Gemma 4 26B A4B", "google/gemma-4-26B-A4B-it")
def gemma4_moe() -> tuple[Any, Any]:
    """As 31B, with experts beside the dense part of every layer."""
    return _gemma4(
        "<|channel>thought{{ '\n' }}<channel|>",
        False,
        {"standardize": True},
        layer_types=[SLIDING, SLIDING, FULL],
        use_bidirectional_attention="vision",
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        hidden_size_per_layer_input=0,
        enable_moe_block=True,
        num_experts=4,
        top_k_experts=2,
        moe_intermediate_size=32,
    )
