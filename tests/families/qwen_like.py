"""Tiny checkpoints of families whose images keep their shape: Qwen-VL and those built like it."""

from __future__ import annotations

from typing import Any

from tests import tiny
from tests.families.registry import family

CONTENT = (
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}IMAGE{% elif c['type'] == 'video' %}VIDEO"
    "{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
)
QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
QWEN_VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
QWEN_SPECIALS = {"start": "<|im_start|>", "eos": "<|im_end|>", "end": "<|endoftext|>"}
QWEN_VISION = {
    "image_token": "<|image_pad|>",
    "video_token": "<|video_pad|>",
    "vision_start_token": "<|vision_start|>",
    "vision_end_token": "<|vision_end|>",
}
QWEN_IDS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


def chatml(image: str, system: str = "", start: str = "", video: str = QWEN_VIDEO) -> str:
    """ChatML turns; `system` is said where no system message is given, `start` begins the answer."""
    default = (
        "{% if loop.first and m['role'] != 'system' %}<|im_start|>system\n" + system + "<|im_end|>\n{% endif %}"
        if system
        else ""
    )
    content = CONTENT.replace("IMAGE", image).replace("VIDEO", video)
    return (
        "{% for m in messages %}" + default + "<|im_start|>{{ m['role'] }}\n" + content +
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n" + start + "{% endif %}"
    )  # fmt: skip


def text(tok: Any, **more: Any) -> dict[str, Any]:
    """A narrow decoder with grouped heads."""
    return {
        "vocab_size": len(tok),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "bos_token_id": tok.bos_token_id,
        "eos_token_id": tok.eos_token_id,
        "pad_token_id": tok.pad_token_id,
        **more,
    }


def ids(tok: Any, names: dict[str, str]) -> dict[str, int]:
    """Token ids by the names that a configuration gives them."""
    return {name: tok.convert_tokens_to_ids(token) for name, token in names.items()}


def _qwen_tokenizer(template: str, **specials: str) -> Any:
    return tiny.tokenizer({**QWEN_SPECIALS, **specials}, template, QWEN_VISION)


def _pixels(patch: int, merge: int = 2, frames: int = 1, **more: Any) -> dict[str, Any]:
    """What image and video processors share: limits from 4 to 64 cells; some count a picture as two frames."""
    cell = frames * (patch * merge) ** 2
    return {
        "patch_size": patch,
        "merge_size": merge,
        "size": {"shortest_edge": 4 * cell, "longest_edge": 64 * cell},
        **more,
    }


def _qwen_vision(patch: int, **more: Any) -> dict[str, Any]:
    return {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_heads": 4,
        "patch_size": patch,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        **more,
    }


@family("Qwen2-VL", "Qwen/Qwen2-VL-2B-Instruct")
def qwen2_vl() -> tuple[Any, Any]:
    from transformers import Qwen2VLConfig, Qwen2VLProcessor, Qwen2VLVideoProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tok = _qwen_tokenizer(chatml(QWEN_IMAGE, "You are a helpful assistant."))
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e6}
    vision = {"depth": 2, "embed_dim": 64, "hidden_size": 64, "mlp_ratio": 2, "num_heads": 4, "patch_size": 7}
    config = Qwen2VLConfig(
        text_config=text(tok, rope_parameters=rope),
        vision_config=vision,
        tie_word_embeddings=True,
        **ids(tok, QWEN_IDS),
    )
    images, videos = Qwen2VLImageProcessorPil(**_pixels(7)), Qwen2VLVideoProcessor(**_pixels(7))
    return config, Qwen2VLProcessor(images, tok, videos, chat_template=tok.chat_template)


@family("Qwen2.5-VL", "Qwen/Qwen2.5-VL-7B-Instruct")
def qwen2_5_vl() -> tuple[Any, Any]:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLProcessor, Qwen2VLVideoProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tok = _qwen_tokenizer(chatml(QWEN_IMAGE, "You are a helpful assistant."))
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1e6}
    # windows of two by two cells, then a layer that sees the whole image
    vision = _qwen_vision(7, out_hidden_size=64, window_size=28, fullatt_block_indexes=[1], tokens_per_second=2)
    config = Qwen2_5_VLConfig(
        text_config=text(tok, rope_parameters=rope),
        vision_config=vision,
        tie_word_embeddings=False,
        **ids(tok, QWEN_IDS),
    )
    images, videos = Qwen2VLImageProcessorPil(**_pixels(7)), Qwen2VLVideoProcessor(**_pixels(7))
    return config, Qwen2_5_VLProcessor(images, tok, videos, chat_template=tok.chat_template)


def _qwen3_processor(tok: Any) -> Any:
    from transformers import Qwen3VLProcessor, Qwen3VLVideoProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    half: dict[str, Any] = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    images = Qwen2VLImageProcessorPil(**_pixels(8, **half))
    return Qwen3VLProcessor(images, tok, Qwen3VLVideoProcessor(**_pixels(8)), chat_template=tok.chat_template)


def _qwen3_rope(sections: list[int], theta: float, **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "mrope_interleaved": True, "mrope_section": sections, "rope_theta": theta, **more}


@family("Qwen3-VL", "Qwen/Qwen3-VL-4B-Instruct")
def qwen3_vl() -> tuple[Any, Any]:
    from transformers import Qwen3VLConfig

    tok = _qwen_tokenizer(chatml(QWEN_IMAGE))
    # two layers of the tower also add to the first two of the decoder; heads are wider than the hidden size over them
    vision = _qwen_vision(8, depth=3, out_hidden_size=64, num_position_embeddings=64, deepstack_visual_indexes=[0, 1])
    config = Qwen3VLConfig(
        text_config=text(tok, head_dim=32, rope_parameters=_qwen3_rope([6, 5, 5], 5e6)),
        vision_config=vision,
        tie_word_embeddings=True,
        **ids(tok, QWEN_IDS),
    )
    return config, _qwen3_processor(tok)


@family("Qwen3-VL MoE", "Qwen/Qwen3-VL-30B-A3B-Instruct")
def qwen3_vl_moe() -> tuple[Any, Any]:
    from transformers import Qwen3VLMoeConfig

    tok = _qwen_tokenizer(chatml(QWEN_IMAGE))
    vision = _qwen_vision(8, depth=3, out_hidden_size=64, num_position_embeddings=64, deepstack_visual_indexes=[0, 1])
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    rope = _qwen3_rope([6, 5, 5], 5e6)
    config = Qwen3VLMoeConfig(
        text_config=text(tok, head_dim=32, rope_parameters=rope, tie_word_embeddings=False, **experts),
        vision_config=vision,
        tie_word_embeddings=False,
        **ids(tok, QWEN_IDS),
    )
    return config, _qwen3_processor(tok)


@family("Qwen3.5", "Qwen/Qwen3.5-27B")
def qwen3_5() -> tuple[Any, Any]:
    from transformers import Qwen3_5Config

    tok = _qwen_tokenizer(chatml(QWEN_IMAGE, start="<think>\n"), think="<think>", answer="</think>")
    linear = {
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    rope = _qwen3_rope([2, 1, 1], 1e7, partial_rotary_factor=0.25)
    config = Qwen3_5Config(
        # by default every fourth layer has full attention, the others are linear
        text_config=text(tok, num_hidden_layers=4, head_dim=32, rope_parameters=rope, **linear),
        vision_config=_qwen_vision(8, out_hidden_size=64, num_position_embeddings=64),
        tie_word_embeddings=False,
        **ids(tok, QWEN_IDS),
    )
    return config, _qwen3_processor(tok)


GLM_TEMPLATE = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m['role'] }}|>\n"
    + CONTENT.replace("IMAGE", "<|begin_of_image|><|image|><|end_of_image|>")
    + "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def _glm(config_class: Any, processor_class: Any, images: Any, videos: Any) -> tuple[Any, Any]:
    roles = {name: f"<|{name}|>" for name in ("system", "user", "assistant")}
    marks = {f"{end}_{kind}": f"<|{end}_of_{kind}|>" for end in ("begin", "end") for kind in ("image", "video")}
    named = {"image_token": "<|image|>", "video_token": "<|video|>"}
    tok = tiny.tokenizer(
        {"eos": "<|endoftext|>", "mask": "[gMASK]", "sop": "<sop>", **roles, **marks}, GLM_TEMPLATE, named
    )
    names = {
        "image_token_id": "<|image|>",
        "video_token_id": "<|video|>",
        "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>",
        "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>",
    }
    # half of every head turns
    rope = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    config = config_class(
        text_config={"model_type": "glm4v_text", **text(tok, rms_norm_eps=1e-5, rope_parameters=rope)},
        vision_config={"model_type": "glm4v_vision", **_qwen_vision(7, out_hidden_size=64, image_size=56)},
        tie_word_embeddings=False,
        **ids(tok, names),
    )
    pictures, films = images(**_pixels(7, frames=2)), videos(**_pixels(7, frames=2))
    return config, processor_class(pictures, tok, films, chat_template=tok.chat_template)


@family("GLM-4.1V", "zai-org/GLM-4.1V-9B-Thinking")
def glm4v() -> tuple[Any, Any]:
    from transformers import Glm4vConfig, Glm4vProcessor, Glm4vVideoProcessor
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

    return _glm(Glm4vConfig, Glm4vProcessor, Glm4vImageProcessorPil, Glm4vVideoProcessor)


@family("GLM-4.6V", "zai-org/GLM-4.6V-Flash")
def glm46v() -> tuple[Any, Any]:
    from transformers import Glm46VConfig, Glm46VProcessor, Glm46VVideoProcessor
    from transformers.models.glm46v.image_processing_pil_glm46v import Glm46VImageProcessorPil

    return _glm(Glm46VConfig, Glm46VProcessor, Glm46VImageProcessorPil, Glm46VVideoProcessor)


@family("VideoLLaMA 3", "lkhl/VideoLLaMA3-2B-Image-HF")
def video_llama_3() -> tuple[Any, Any]:
    from transformers import VideoLlama3Config, VideoLlama3Processor, VideoLlama3VideoProcessor
    from transformers.models.video_llama_3.image_processing_pil_video_llama_3 import VideoLlama3ImageProcessorPil

    tok = _qwen_tokenizer(chatml("<|image_pad|>\n"))
    tower = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    rope = {"rope_type": "default", "rope_theta": 1e6}
    config = VideoLlama3Config(
        text_config={"model_type": "qwen2", **text(tok, rope_parameters=rope, tie_word_embeddings=True)},
        vision_config={**tower, "patch_size": 14},
        tie_word_embeddings=True,
        **ids(tok, {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}),
    )
    # a patch of a picture is a token; only those of videos are merged
    images, videos = VideoLlama3ImageProcessorPil(**_pixels(14, merge=1)), VideoLlama3VideoProcessor(**_pixels(14))
    return config, VideoLlama3Processor(images, tok, videos, chat_template=tok.chat_template)


@family("PaddleOCR-VL", "PaddlePaddle/PaddleOCR-VL")
def paddleocr_vl() -> tuple[Any, Any]:
    from transformers import PaddleOCRVLConfig, PaddleOCRVLProcessor
    from transformers.models.paddleocr_vl.image_processing_pil_paddleocr_vl import PaddleOCRVLImageProcessorPil

    start = "<|begin_of_sentence|>"
    template = (
        start
        + "{% for m in messages %}{% if m['role'] == 'user' %}User: {% elif m['role'] == 'assistant' %}Assistant: "
        + "{% endif %}"
        + CONTENT.replace("IMAGE", "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>")
        + "{% if m['role'] == 'assistant' %}</s>{% else %}{{ '\n' }}{% endif %}{% endfor %}"
        + "{% if add_generation_prompt %}Assistant: {% endif %}"
    )
    named = {
        "image_token": "<|IMAGE_PLACEHOLDER|>",
        "video_token": "<|video_pad|>",
        "vision_start_token": "<|IMAGE_START|>",
        "vision_end_token": "<|IMAGE_END|>",
    }
    tok = tiny.tokenizer({"eos": "</s>", "start": start}, template, named)
    rope = {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 5e5}
    tower = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = PaddleOCRVLConfig(
        text_config=text(tok, rms_norm_eps=1e-5, head_dim=32, rope_parameters=rope, use_bias=False),
        vision_config={**tower, "image_size": 56, "patch_size": 7},
        **{name.replace("_token", "_token_id"): tok.convert_tokens_to_ids(token) for name, token in named.items()},
    )
    images = PaddleOCRVLImageProcessorPil(**_pixels(7))
    return config, PaddleOCRVLProcessor(images, tok, chat_template=tok.chat_template)


@family("HunyuanOCR", "tencent/HunyuanOCR")
def hunyuan_vl() -> tuple[Any, Any]:
    from transformers import HunYuanVLConfig, HunYuanVLProcessor
    from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import HunYuanVLImageProcessorPil

    # a turn is closed by its role's mark, so nothing is left to write before the answer
    template = (
        "<|hy_begin|>{% for m in messages %}"
        + CONTENT.replace("IMAGE", "<|hy_image_start|><|hy_image|><|hy_image_end|>")
        + "{% if m['role'] == 'system' %}<|hy_system|>{% elif m['role'] == 'user' %}<|hy_User|>"
        + "{% else %}<|hy_Assistant|>{% endif %}{% endfor %}"
    )
    named = {
        "image_token": "<|hy_image|>",
        "image_start_token": "<|hy_image_start|>",
        "image_end_token": "<|hy_image_end|>",
    }
    specials = {"eos": "<|hy_Assistant|>", "user": "<|hy_User|>", "system": "<|hy_system|>", "line": "<|hy_newline|>"}
    tok = tiny.tokenizer(specials, template, named, bos="<|hy_begin|>")
    tok.backend_tokenizer.post_processor = None  # the template writes the first token
    rope = {"rope_type": "xdrope", "xdrope_section": [4, 4, 4, 4], "alpha": 1000.0, "factor": 1.0, "rope_theta": 1e4}
    tower = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    names = {
        "image_token_id": "<|hy_image|>",
        "im_start_id": "<|hy_image_start|>",
        "im_end_id": "<|hy_image_end|>",
        "im_newline_id": "<|hy_newline|>",
    }
    config = HunYuanVLConfig(
        text_config=text(tok, rms_norm_eps=1e-5, head_dim=32, rope_parameters=rope),
        vision_config={**tower, "patch_size": 7, "out_hidden_size": 64, "max_image_size": 112, "min_image_size": 28},
        tie_word_embeddings=True,
        **ids(tok, names),
    )
    images = HunYuanVLImageProcessorPil(**_pixels(7))
    return config, HunYuanVLProcessor(images, tok, chat_template=tok.chat_template)


@family("LightOnOCR", "lightonai/LightOnOCR-1B-1025")
def lighton_ocr() -> tuple[Any, Any]:
    from transformers import LightOnOcrConfig, LightOnOcrProcessor
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    named = {
        "image_token": "<|image_pad|>",
        "image_break_token": "<|vision_pad|>",
        "image_end_token": "<|vision_end|>",
    }
    tok = tiny.tokenizer(QWEN_SPECIALS, chatml("<|image_pad|>"), named)
    rope = {"rope_type": "default", "rope_theta": 1e6}
    tower = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LightOnOcrConfig(
        text_config={"model_type": "qwen3", **text(tok, head_dim=32, rope_parameters=rope)},
        vision_config={
            "model_type": "pixtral",
            **tower,
            "head_dim": 16,
            "hidden_act": "silu",
            "image_size": 112,
            "patch_size": 7,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        spatial_merge_size=2,
        image_token_id=tok.convert_tokens_to_ids("<|image_pad|>"),
        tie_word_embeddings=True,
    )
    # sides are rounded to cells, which are two by two patches
    images = PixtralImageProcessorPil(size={"longest_edge": 112}, patch_size={"height": 14, "width": 14})
    return config, LightOnOcrProcessor(images, tok, 7, 2, chat_template=tok.chat_template)


@family("ERNIE 4.5 VL", "baidu/ERNIE-4.5-VL-28B-A3B-PT")
def ernie4_5_vl_moe() -> tuple[Any, Any]:
    from transformers import Ernie4_5_VLMoeConfig, Ernie4_5_VLMoeProcessor, Ernie4_5_VLMoeVideoProcessor
    from transformers.models.ernie4_5_vl_moe.image_processing_pil_ernie4_5_vl_moe import Ernie4_5_VLMoeImageProcessorPil

    start = "<|begin_of_sentence|>"
    template = (
        start
        + "{% for m in messages %}{% if m['role'] == 'user' %}User: {% elif m['role'] == 'assistant' %}Assistant: "
        + "{% endif %}"
        + CONTENT.replace("IMAGE", "Picture 1:<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>")
        + "{% if m['role'] == 'assistant' %}<|end_of_sentence|>{% else %}{{ '\n' }}{% endif %}{% endfor %}"
        + "{% if add_generation_prompt %}Assistant: {% endif %}"
    )
    named = {
        f"{kind.lower()}{end.lower()}_token": f"<|{kind}{end or '_PLACEHOLDER'}|>"
        for kind in ("IMAGE", "VIDEO")
        for end in ("", "_START", "_END")
    }
    tok = tiny.tokenizer({"eos": "<|end_of_sentence|>", "start": start}, template, named)
    experts = {
        "moe_intermediate_size": [32, 16],  # of words and of pictures, which have experts of their own
        "moe_k": 2,
        "moe_num_experts": 4,
        "moe_num_shared_experts": 2,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    }
    rope = {"rope_type": "default", "mrope_section": [3, 3, 2], "rope_theta": 5e5}
    vision = _qwen_vision(7)
    del vision["temporal_patch_size"]
    config = Ernie4_5_VLMoeConfig(
        text_config=text(tok, rms_norm_eps=1e-5, rope_parameters=rope, **experts),
        vision_config={**vision, "temporal_merge_size": 2},
        tie_word_embeddings=True,
        **{name.replace("_token", "_token_id"): tok.convert_tokens_to_ids(token) for name, token in named.items()},
    )
    images = Ernie4_5_VLMoeImageProcessorPil(**_pixels(7))
    videos = Ernie4_5_VLMoeVideoProcessor(**_pixels(7), draw_on_frames=False)  # drawing asks for a font
    return config, Ernie4_5_VLMoeProcessor(images, tok, videos, chat_template=tok.chat_template)
