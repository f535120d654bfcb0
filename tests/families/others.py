"""Tiny checkpoints of families that see tiles, native resolution or a padded square, on various decoders."""

from __future__ import annotations

from typing import Any

from tests.families.registry import family
from tests.tiny import tokenizer

MEAN = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CHATML = ("<|im_start|>{{ m['role'] }}\n", "<|im_end|>\n")
LLAMA3 = ("<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n", "<|eot_id|>")
COHERE = (
    "<|START_OF_TURN_TOKEN|>{{ {'user': '<|USER_TOKEN|>', 'assistant': '<|CHATBOT_TOKEN|>'}"
    ".get(m['role'], '<|SYSTEM_TOKEN|>') }}",
    "<|END_OF_TURN_TOKEN|>",
)
COHERE_WORDS = ["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"]


def template_of(turn: tuple[str, str], image: str = "<image>", start: str = "", first: bool = False) -> str:
    """A chat template of `turn` (its opening and its end), with `image` in its place or before all text of a turn."""
    opened, closed = turn
    parts = "{{ c['text'] if c['type'] == 'text' else %s }}" % ("''" if first else repr(image))
    images = "{% for c in m['content'] if c['type'] == 'image' %}" + image + "{% endfor %}" if first else ""
    return (
        start
        + "{% for m in messages %}"
        + opened
        + "{% if m['content'] is string %}{{ m['content'] }}{% else %}"
        + images
        + "{% for c in m['content'] %}"
        + parts
        + "{% endfor %}{% endif %}"
        + closed
        + "{% endfor %}{% if add_generation_prompt %}{% set m = {'role': 'assistant'} %}"
        + opened
        + "{% endif %}"
    )


def tokenizer_of(words: list[str], template: str | None, eos: str, bos: str | None = None, **named: str) -> Any:
    return tokenizer({"eos": eos, **{w: w for w in words}}, template, named, bos)


def text_part(tok: Any, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tok),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": tok.bos_token_id,
        "eos_token_id": tok.eos_token_id,
        "pad_token_id": tok.pad_token_id,
        **more,
    }


def tower_part(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 24,
        "patch_size": 4,
        **more,
    }


def square(side: int) -> dict[str, int]:
    return {"height": side, "width": side}


def rope(theta: float, kind: str = "default", **more: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": theta, **more}


def cohere2_part(tok: Any) -> dict[str, Any]:
    kinds = ["sliding_attention", "sliding_attention", "full_attention"]
    return text_part(tok, model_type="cohere2", logit_scale=0.25, sliding_window=64, layer_types=kinds)


@family("Aya Vision", "CohereLabs/aya-vision-8b")
def aya_vision() -> tuple[Any, Any]:
    from transformers import AyaVisionConfig, AyaVisionProcessor, GotOcr2ImageProcessor

    words = ["<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>"]
    words += [*COHERE_WORDS, "TILE_GLOBAL", *(f"TILE_{i}" for i in range(1, 13))]
    template = template_of(COHERE, start="<BOS_TOKEN>")
    tok = tokenizer_of(words, template, "<|END_OF_TURN_TOKEN|>", bos="<BOS_TOKEN>")
    config = AyaVisionConfig(
        text_config=cohere2_part(tok),
        vision_config=tower_part(model_type="siglip_vision_model", vision_use_head=False),
        image_token_index=tok.convert_tokens_to_ids("<|IMG_PATCH|>"),
        downsample_factor=2,
    )
    tiles = GotOcr2ImageProcessor(size=square(24), crop_to_patches=True, max_patches=12, **MEAN)
    return config, AyaVisionProcessor(
        tiles, tok, patch_size=4, img_size=24, downsample_factor=2, chat_template=template
    )


@family("Command A Vision", "CohereLabs/command-a-vision-07-2025")
def cohere2_vision() -> tuple[Any, Any]:
    from transformers import Cohere2VisionConfig, Cohere2VisionImageProcessor, Cohere2VisionProcessor

    template = template_of(COHERE, image="<|IMG_PATCH|>", start="<BOS_TOKEN>")
    tok = tokenizer_of(
        COHERE_WORDS,
        template,
        "<|END_OF_TURN_TOKEN|>",
        bos="<BOS_TOKEN>",
        image_token="<|IMG_PATCH|>",
        boi_token="<|START_OF_IMG|>",
        eoi_token="<|END_OF_IMG|>",
        img_line_break_token="<|IMG_LINE_BREAK|>",
    )
    config = Cohere2VisionConfig(
        text_config=cohere2_part(tok),
        vision_config=tower_part(model_type="siglip_vision_model", vision_use_head=False),
        image_token_id=tok.image_token_id,
        alignment_intermediate_size=128,
    )
    # the processor takes the side of a tile in tokens from `patch_size`: 16 both ways as published, 3 here
    tiles = Cohere2VisionImageProcessor(size=square(24), patch_size=3, max_patches=12, **MEAN)
    return config, Cohere2VisionProcessor(tiles, tok, chat_template=template)


@family("Molmo 2", "allenai/Molmo2-8B")
def molmo2() -> tuple[Any, Any]:
    from transformers import Molmo2Config, Molmo2ImageProcessor, Molmo2Processor, Molmo2VideoProcessor

    template = template_of(CHATML, image="<|image|>", first=True)
    tok = tokenizer_of(["<|im_start|>"], template, "<|im_end|>")  # the processor puts the end token in front
    # the words of images have ids behind those the head can say, as published
    words = ["<im_start>", "<im_end>", "<im_patch>", "<im_col>", "<low_res_im_start>", "<|image|>", "<im_low>"]
    words += ["<frame_start>", "<frame_end>", "<|video|>"]
    tok.add_tokens(words, special_tokens=True)
    ids = dict(zip(words, tok.convert_tokens_to_ids(words), strict=True))
    config = Molmo2Config(
        text_config=text_part(
            tok, vocab_size=len(tok) - len(words), additional_vocab_size=16, head_dim=16, rope_parameters=rope(1e6)
        ),
        vision_config=tower_part(
            image_size=[28, 28], num_hidden_layers=3, num_key_value_heads=4, head_dim=16, num_position_embeddings=49
        ),
        adapter_config={
            "vision_feature_layer": [2, 1],
            "hidden_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 16,
            "intermediate_size": 96,
            "text_hidden_size": 64,
        },
        image_start_token_id=ids["<im_start>"],
        low_res_image_start_token_id=ids["<low_res_im_start>"],
        image_end_token_id=ids["<im_end>"],
        image_patch_id=ids["<im_patch>"],
        frame_start_token_id=ids["<frame_start>"],
        frame_end_token_id=ids["<frame_end>"],
    )
    side = {"size": square(28), "patch_size": 4}
    crops = Molmo2ImageProcessor(max_crops=8, overlap_margins=[1, 1], pooling_size=[2, 2], **side)
    return config, Molmo2Processor(crops, Molmo2VideoProcessor(**side), tok, chat_template=template)


@family("LFM2-VL", "LiquidAI/LFM2-VL-1.6B")
def lfm2_vl() -> tuple[Any, Any]:
    from transformers import Lfm2VlConfig, Lfm2VlImageProcessor, Lfm2VlProcessor

    words = ["<|im_start|>", *(f"<|img_row_{r}_col_{c}|>" for r in range(1, 11) for c in range(1, 11))]
    template = template_of(CHATML, start="<|startoftext|>")
    tok = tokenizer_of(
        words,
        template,
        "<|im_end|>",
        bos="<|startoftext|>",
        image_token="<image>",
        image_start_token="<|image_start|>",
        image_end_token="<|image_end|>",
        image_thumbnail="<|img_thumbnail|>",
    )
    config = Lfm2VlConfig(
        text_config=text_part(
            tok,
            model_type="lfm2",
            layer_types=["conv", "full_attention", "conv", "full_attention"],
            num_hidden_layers=4,
            block_multiple_of=16,
            rope_parameters=rope(1e6),
        ),
        vision_config=tower_part(model_type="siglip2_vision_model", num_patches=64, vision_use_head=False),
        image_token_id=tok.image_token_id,
        projector_hidden_size=96,
    )
    tiles = Lfm2VlImageProcessor(
        size=square(32), tile_size=32, encoder_patch_size=4, min_image_tokens=4, max_image_tokens=16, max_tiles=10
    )
    return config, Lfm2VlProcessor(tiles, tok, chat_template=template)


@family("Ovis 2", "thisisiron/Ovis2-1B-hf")
def ovis2() -> tuple[Any, Any]:
    from transformers import Ovis2Config, Ovis2ImageProcessor, Ovis2Processor

    marks = ["<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"]
    template = template_of(CHATML, image="<image>\n")
    tok = tokenizer_of(["<|im_start|>", "<image>", "<IMG_ATOM>", *marks], template, "<|im_end|>")
    config = Ovis2Config(
        text_config=text_part(tok, model_type="qwen2", tie_word_embeddings=True, rope_parameters=rope(1e6)),
        vision_config=tower_part(vocab_size=128, hidden_stride=2),
        image_token_id=tok.convert_tokens_to_ids("<IMG_ATOM>"),
        visual_indicator_token_ids=tok.convert_tokens_to_ids(marks),
        vocab_size=len(tok),
        hidden_size=64,
    )
    tiles = Ovis2ImageProcessor(size=square(24), crop_to_patches=True, max_patches=9, **MEAN)
    return config, Ovis2Processor(tiles, tok, image_seq_length=9, chat_template=template)


@family("Perception LM", "facebook/Perception-LM-1B")
def perception_lm() -> tuple[Any, Any]:
    from transformers import (
        PerceptionLMConfig,
        PerceptionLMImageProcessor,
        PerceptionLMProcessor,
        PerceptionLMVideoProcessor,
    )

    template = template_of(LLAMA3, image="<|image|>", start="<|begin_of_text|>")
    tok = tokenizer_of(
        ["<|start_header_id|>", "<|end_header_id|>"],
        template,
        "<|eot_id|>",
        bos="<|begin_of_text|>",
        image_token="<|image|>",
        video_token="<|video|>",
    )
    config = PerceptionLMConfig(
        text_config=text_part(tok, model_type="llama", tie_word_embeddings=True, rope_parameters=rope(5e5)),
        # published with a tower of timm's; this one too has a class token in front, which the model cuts off
        vision_config=tower_part(model_type="clip_vision_model", model_args={"embed_dim": 64}),
        image_token_id=tok.image_token_id,
        video_token_id=tok.video_token_id,
        projector_pooling_ratio=2,
    )
    tiles = PerceptionLMImageProcessor(tile_size=24, max_num_tiles=16)
    return config, PerceptionLMProcessor(
        PerceptionLMVideoProcessor(size=square(24)), tiles, tok, patch_size=4, pooling_ratio=2, chat_template=template
    )


@family("Llama 4", "meta-llama/Llama-4-Scout-17B-16E-Instruct")
def llama4() -> tuple[Any, Any]:
    from transformers import Llama4Config, Llama4ImageProcessor, Llama4Processor

    turn = ("<|header_start|>{{ m['role'] }}<|header_end|>\n\n", "<|eot|>")
    words = ["<|header_start|>", "<|header_end|>", "<|image_start|>", "<|image_end|>", "<|image|>", "<|patch|>"]
    words += ["<|tile_x_separator|>", "<|tile_y_separator|>"]
    template = template_of(turn, image="<|image|>", start="<|begin_of_text|>")
    tok = tokenizer_of(words, template, "<|eot|>", bos="<|begin_of_text|>")
    config = Llama4Config(
        text_config=text_part(
            tok,
            num_hidden_layers=4,  # three with rope and chunks, then one without rope that sees all
            head_dim=16,
            intermediate_size_mlp=96,
            num_local_experts=4,
            attention_chunk_size=64,
            rope_parameters=rope(5e5),
        ),
        vision_config=tower_part(
            intermediate_size=256, projector_input_dim=64, projector_output_dim=64, vision_output_dim=64
        ),
        image_token_index=tok.convert_tokens_to_ids("<|patch|>"),
        boi_token_index=tok.convert_tokens_to_ids("<|image_start|>"),
        eoi_token_index=tok.convert_tokens_to_ids("<|image_end|>"),
    )
    tiles = Llama4ImageProcessor(size=square(24), max_patches=16, **MEAN)
    return config, Llama4Processor(tiles, tok, patch_size=4, chat_template=template)


def _deepseek(image: str, roles: tuple[str, str], **named: str) -> tuple[Any, str]:
    user, assistant = roles
    opened = "{{ {'user': 'USER: ', 'assistant': 'BOT:'}.get(m['role'], '') }}"
    turn = (opened.replace("USER", user).replace("BOT", assistant), "{{ '\\n\\n' }}")
    template = template_of(turn, image=image, start="<|begin_of_sentence|>")
    marks = [role for role in roles if role.startswith("<")]
    return tokenizer_of(marks, template, "<|end_of_sentence|>", "<|begin_of_sentence|>", **named), template


@family("DeepSeek-VL", "deepseek-community/deepseek-vl-1.3b-chat")
def deepseek_vl() -> tuple[Any, Any]:
    from transformers import DeepseekVLConfig, DeepseekVLImageProcessor, DeepseekVLProcessor

    tok, template = _deepseek("<image_placeholder>", ("User", "Assistant"), image_token="<image_placeholder>")
    config = DeepseekVLConfig(
        text_config=text_part(tok, model_type="llama", num_key_value_heads=4, rope_parameters=rope(1e4)),
        vision_config=tower_part(model_type="siglip_vision_model", image_size=32, vision_use_head=False),
        image_token_id=tok.image_token_id,
        tie_word_embeddings=False,
    )
    image = DeepseekVLImageProcessor(size=square(32), min_size=2, **MEAN)
    return config, DeepseekVLProcessor(image, tok, chat_template=template, num_image_tokens=64)


@family("Janus-Pro", "deepseek-community/Janus-Pro-1B")
def janus() -> tuple[Any, Any]:
    from transformers import JanusConfig, JanusImageProcessor, JanusProcessor

    tok, template = _deepseek(
        "<image_placeholder>\n",
        ("<|User|>", "<|Assistant|>"),
        image_token="<image_placeholder>",
        boi_token="<begin_of_image>",
        eoi_token="<end_of_image>",
    )
    config = JanusConfig(
        text_config=text_part(tok, model_type="llama", num_key_value_heads=4, rope_parameters=rope(1e4)),
        vision_config={
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 32,
            "patch_size": 4,
            "mlp_ratio": 2.0,
            "projection_dim": 64,
            "num_image_tokens": 64,
        },
        vq_config={
            "num_embeddings": 32,
            "latent_channels": 16,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 1,
            "projection_dim": 64,
            "image_token_embed_dim": 64,
        },
        image_token_id=tok.image_token_id,
        tie_word_embeddings=False,
    )
    image = JanusImageProcessor(size=square(32), min_size=2, **MEAN)
    return config, JanusProcessor(image, tok, chat_template=template, num_image_tokens=64)


@family("MiniCPM-V 4.6", "openbmb/MiniCPM-V-4.6")
def minicpmv4_6() -> tuple[Any, Any]:
    from transformers import (
        MiniCPMV4_6Config,
        MiniCPMV4_6ImageProcessor,
        MiniCPMV4_6Processor,
        MiniCPMV4_6VideoProcessor,
    )

    template = template_of(CHATML, image="<|image_pad|>\n")
    tok = tokenizer_of(
        ["<|im_start|>"],
        template,
        "<|im_end|>",
        image_token="<|image_pad|>",
        video_token="<|video_pad|>",
        image_start_token="<image>",
        image_end_token="</image>",
        slice_start_token="<slice>",
        slice_end_token="</slice>",
        image_id_start_token="<image_id>",
        image_id_end_token="</image_id>",
    )
    config = MiniCPMV4_6Config(
        text_config=text_part(
            tok,
            model_type="qwen3_5_text",
            num_hidden_layers=4,  # three linear ones, then one with full attention
            head_dim=32,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            rope_parameters=rope(1e7, mrope_section=[2, 1, 1], mrope_interleaved=True, partial_rotary_factor=0.25),
        ),
        vision_config=tower_part(image_size=64, num_hidden_layers=3),
        insert_layer_id=1,
        image_size=64,
        image_token_id=tok.image_token_id,
        video_token_id=tok.video_token_id,
    )
    slices = {"scale_resolution": 64, "patch_size": 4, "max_slice_nums": 9}
    images, videos = MiniCPMV4_6ImageProcessor(**slices), MiniCPMV4_6VideoProcessor(**slices)
    return config, MiniCPMV4_6Processor(images, videos, tok, chat_template=template)


@family("Kimi K2.6", "moonshotai/Kimi-K2.6")
def kimi_k25() -> tuple[Any, Any]:
    from transformers import Kimi_K25Config, Kimi_K25ImageProcessor, Kimi_K25Processor, Kimi_K25VideoProcessor

    turn = ("<|im_{{ m['role'] }}|>{{ m['role'] }}<|im_middle|>", "<|im_end|>")
    template = template_of(turn, image="<|media_begin|>image<|media_content|><|media_pad|><|media_end|>\n")
    words = ["<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"]
    words += ["<|media_begin|>", "<|media_content|>", "<|media_end|>"]
    tok = tokenizer_of(
        words, template, "<|im_end|>", image_token="<|media_pad|>", video_token="<|kimi_k25_video_placeholder|>"
    )
    yarn = {"factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}
    config = Kimi_K25Config(
        text_config=text_part(
            tok,
            model_type="deepseek_v3",
            num_key_value_heads=4,
            q_lora_rank=32,
            kv_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            v_head_dim=16,
            n_routed_experts=8,
            num_experts_per_tok=2,
            n_group=1,
            topk_group=1,
            first_k_dense_replace=1,
            moe_intermediate_size=32,
            num_mtp_layers=0,
            rope_parameters=rope(5e4, "yarn", original_max_position_embeddings=1024, **yarn),
        ),
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": 4,
            "pos_emb_height": 8,
            "pos_emb_width": 8,
        },
        projection_hidden_size=64,
        image_token_id=tok.image_token_id,
        video_token_id=tok.video_token_id,
        vision_start_token_id=tok.convert_tokens_to_ids("<|media_begin|>"),
        vision_end_token_id=tok.convert_tokens_to_ids("<|media_end|>"),
        tie_word_embeddings=False,
    )
    images, videos = Kimi_K25ImageProcessor(patch_size=4, max_patches=256), Kimi_K25VideoProcessor(patch_size=4)
    return config, Kimi_K25Processor(images, tok, videos, chat_template=template)
