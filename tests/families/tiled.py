"""Tiny checkpoints of families that cut an image into tiles: InternVL, Idefics 3, SmolVLM and their relatives."""

from __future__ import annotations

from typing import Any

from tests import tiny
from tests.families.qwen_like import CONTENT, chatml, text
from tests.families.registry import family

TILE = 56  # pixels; a tower with patches of seven pixels, two by two to a visual token: 16 tokens a tile


def _internvl(
    decoder: str, vision: dict[str, Any], system: str = "", tied: bool = False, bos: str | None = None, **more: Any
) -> tuple[Any, Any]:
    from transformers import InternVLConfig, InternVLProcessor, InternVLVideoProcessor
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    tok = tiny.tokenizer(
        {"start": "<|im_start|>", "eos": "<|im_end|>"}, chatml("<IMG_CONTEXT>\n", system, video="<video>\n"), named, bos
    )
    tower = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": [TILE, TILE],
        "patch_size": [7, 7],
        "attention_bias": True,
        **vision,
    }
    config = InternVLConfig(
        text_config={"model_type": decoder, **text(tok, tie_word_embeddings=tied, **more)},
        vision_config=tower,
        image_token_id=tok.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=16,
        downsample_ratio=0.5,
        tie_word_embeddings=tied,
    )
    size = {"height": TILE, "width": TILE}
    colours = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    images = GotOcr2ImageProcessorPil(size=size, crop_to_patches=True, min_patches=1, max_patches=6, **colours)
    videos = InternVLVideoProcessor(size=size, **colours)
    return config, InternVLProcessor(images, tok, videos, image_seq_length=16, chat_template=tok.chat_template)


@family("InternVL 3", "OpenGVLab/InternVL3-1B-hf")
def internvl3() -> tuple[Any, Any]:
    return _internvl("qwen2", {}, tied=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6})


@family("InternVL 3.5", "OpenGVLab/InternVL3_5-8B-HF")
def internvl3_5() -> tuple[Any, Any]:
    return _internvl("qwen3", {}, head_dim=32, rope_parameters={"rope_type": "default", "rope_theta": 1e6})


# what `ercr convert` writes for the checkpoints of these two
_CONVERTED = {"use_qk_norm": False, "use_mask_token": False, "use_mean_pooling": True, "norm_type": "layer_norm"}


@family("InternVL 2.5 (InternLM2)", "OpenGVLab/InternVL2_5-8B")
def internvl2_5_internlm() -> tuple[Any, Any]:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e6}
    return _internvl("llama", _CONVERTED, "You are InternVL .", bos="<s>", attention_bias=False, rope_parameters=rope)


@family("InternVL 2.5 (Qwen2.5)", "OpenGVLab/InternVL2_5-4B")
def internvl2_5_qwen() -> tuple[Any, Any]:
    window: dict[str, Any] = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": 2}
    rope = {"rope_type": "default", "rope_theta": 1e6}
    return _internvl("qwen2", _CONVERTED, "You are InternVL .", rope_parameters=rope, **window)


def _idefics_template(start: str) -> str:
    """Roles as words; a picture follows the role's colon without a space."""
    return (
        start
        + "{% for m in messages %}{{ m['role'].capitalize() }}:"
        + "{% if m['content'] is string or m['content'][0]['type'] != 'image' %}{{ ' ' }}{% endif %}"
        + CONTENT.replace("IMAGE", "<image>")
        + "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
    )


def _idefics(config_class: Any, bos: str, shuffle: int, tile: int, patch: int, rope: dict[str, Any]) -> tuple[Any, Any]:
    """A configuration and its tokenizer; `shuffle` by `shuffle` patches are one visual token, nine tokens a tile."""
    places = {f"at{row}{column}": f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)}
    named = {
        "image_token": "<image>",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
        "video_token": "<video>",
        "end_of_utterance_token": "<end_of_utterance>",
    }
    tok = tiny.tokenizer({"eos": "<end_of_utterance>", **places}, _idefics_template(bos), named, bos)
    tower = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = config_class(
        text_config={"model_type": "llama", **text(tok, rms_norm_eps=1e-5, rope_parameters=rope)},
        vision_config={**tower, "image_size": tile, "patch_size": patch},
        scale_factor=shuffle,
        image_token_id=tok.convert_tokens_to_ids("<image>"),
        pad_token_id=tok.pad_token_id,
        tie_word_embeddings=False,
    )
    return config, tok


@family("Idefics 3", "HuggingFaceM4/Idefics3-8B-Llama3")
def idefics3() -> tuple[Any, Any]:
    from transformers import Idefics3Config, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    scaled = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
    rope = {"rope_type": "llama3", "rope_theta": 5e5, **scaled}
    # its template writes the first token and its tokenizer adds one too, as the published ones do
    config, tok = _idefics(Idefics3Config, "<|begin_of_text|>", shuffle=2, tile=36, patch=6, rope=rope)
    images = Idefics3ImageProcessorPil(size={"longest_edge": 4 * 36}, max_image_size={"longest_edge": 36})
    return config, Idefics3Processor(images, tok, image_seq_len=9, chat_template=tok.chat_template)


@family("SmolVLM 2", "HuggingFaceTB/SmolVLM2-2.2B-Instruct")
def smolvlm() -> tuple[Any, Any]:
    from transformers import SmolVLMConfig, SmolVLMProcessor, SmolVLMVideoProcessor
    from transformers.models.smolvlm import processing_smolvlm
    from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

    if processing_smolvlm.num2words is None:
        processing_smolvlm.num2words = str  # it only spells the number of a video's frames, but is always asked for
    rope = {"rope_type": "default", "rope_theta": 1.3e5}
    # patches do not fill a tile: the published tower sees 378 of 384 pixels, this one 36 of 38
    config, tok = _idefics(SmolVLMConfig, "<|im_start|>", shuffle=3, tile=38, patch=4, rope=rope)
    tok.backend_tokenizer.post_processor = None  # only its template writes the first token
    size = {"size": {"longest_edge": 4 * 38}, "max_image_size": {"longest_edge": 38}}
    images, videos = SmolVLMImageProcessorPil(**size), SmolVLMVideoProcessor(**size)
    return config, SmolVLMProcessor(images, tok, videos, image_seq_len=9, chat_template=tok.chat_template)


_GOT_SYSTEM = "You should follow the instructions carefully and explain your answers in detail."


@family("GOT-OCR 2", "stepfun-ai/GOT-OCR-2.0-hf")
def got_ocr2() -> tuple[Any, Any]:
    from transformers import GotOcr2Config, GotOcr2Processor
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    # published without a template: these are the turns that its processor writes where it is given no text
    turns = chatml("<img><imgpad></img>\n", _GOT_SYSTEM).replace("<|im_end|>\n", "<|im_end|>")
    named = {"image_token": "<imgpad>", "img_start_token": "<img>", "img_end_token": "</img>"}
    tok = tiny.tokenizer({"start": "<|im_start|>", "eos": "<|im_end|>"}, turns, named)
    tok.init_kwargs["num_image_tokens"] = 64  # an option of the processor, which reads options from here too
    config = GotOcr2Config(
        text_config={"model_type": "qwen2", **text(tok, rope_parameters={"rope_type": "default", "rope_theta": 1e6})},
        vision_config={
            "hidden_size": 64,
            "output_channels": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 128,
            "patch_size": 4,
            "window_size": 6,  # so that windows reach over the edge, as the published ones do
            "global_attn_indexes": [1],
            "mlp_dim": 96,
        },
        image_token_index=tok.convert_tokens_to_ids("<imgpad>"),
        image_seq_length=64,
        tie_word_embeddings=True,
    )
    images = GotOcr2ImageProcessorPil(size={"height": 128, "width": 128})
    return config, GotOcr2Processor(images, tok, chat_template=tok.chat_template)


@family("Granite 4 Vision", "ibm-granite/granite-4.0-3b-vision")
def granite4_vision() -> tuple[Any, Any]:
    from transformers import Granite4VisionConfig, Granite4VisionProcessor
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

    turns = (
        "{% for m in messages %}<|start_of_role|>{{ m['role'] }}<|end_of_role|>"
        + CONTENT.replace("IMAGE", "<image>\n")
        + "<|end_of_text|>\n{% endfor %}"
        + "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
    )
    specials = {"eos": "<|end_of_text|>", "open": "<|start_of_role|>", "close": "<|end_of_role|>"}
    tok = tiny.tokenizer(specials, turns, {"image_token": "<image>"})
    scales = {
        "embedding_multiplier": 12.0,
        "logits_scaling": 8.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 1 / 16,
    }
    rope = {"rope_type": "default", "rope_theta": 1e7}
    pinpoints = [[48, 96], [96, 48], [96, 96], [144, 48], [48, 144]]
    config = Granite4VisionConfig(
        text_config={
            "model_type": "granite4_vision_text",
            **text(tok, num_hidden_layers=7, rope_parameters=rope, tie_word_embeddings=True, **scales),
        },
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 48,
            "patch_size": 6,
        },
        qformer_config={"model_type": "blip_2_qformer", "num_hidden_layers": 1, "intermediate_size": 96},
        image_token_index=tok.convert_tokens_to_ids("<image>"),
        image_seq_length=16,
        image_grid_pinpoints=pinpoints,
        vision_feature_select_strategy="full",
        downsample_rate="2/4",  # two by two queries look at a window of four by four patches
        # every layer of the decoder but the last gets features of its own; the embeddings have none
        deepstack_layer_map=[[-2, 1], [-1, 0]],
        spatial_target_layers=[2, 3, 4, 5],
        tie_word_embeddings=True,
    )
    size = {"height": 48, "width": 48}
    half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    images = LlavaNextImageProcessorPil(size=size, crop_size=size, image_grid_pinpoints=pinpoints, **half)
    options = {"patch_size": 6, "vision_feature_select_strategy": "full", "downsample_rate": "2/4"}
    return config, Granite4VisionProcessor(images, tok, chat_template=tok.chat_template, **options)
