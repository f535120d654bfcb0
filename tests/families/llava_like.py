"""Tiny LLaVA and its kin: a tower of patches, a projector, and one of many decoders."""

from __future__ import annotations

from typing import Any

from tests.families.registry import family
from tests.tiny import tokenizer

S, P = 48, 6  # pixels of a tile and of a patch: 8 x 8 tokens
CHATML = {
    "system": ("<|im_start|>system\n", "<|im_end|>\n"),
    "user": ("<|im_start|>user\n", "<|im_end|>\n"),
    "assistant": ("<|im_start|>assistant\n", "<|im_end|>\n"),
}
VICUNA = {"system": ("", " "), "user": ("USER: ", " "), "assistant": ("ASSISTANT: ", "</s>")}
INST = {"system": ("", "\n"), "user": ("[INST] ", " [/INST]"), "assistant": (" ", "</s>")}


def chat(
    marks: dict[str, tuple[str, str]], image: str, opening: str, start: str = "", first: bool = True, video: str = ""
) -> str:
    """A chat template: `marks` before and after a turn of each role, images (and videos) before the text if `first`."""
    picture = "{% if c['type'] == 'image' %}" + image + "{% endif %}"
    clip = "{% if c['type'] == 'video' %}" + video + "{% endif %}"
    words = "{% if c['type'] == 'text' %}{{ c['text'] }}{% endif %}"
    loops = [picture, *([clip] if video else []), words] if first else [picture + words]
    content = "".join("{% for c in m['content'] %}" + loop + "{% endfor %}" for loop in loops)
    return (
        "{% set marks = " + repr(marks) + " %}" + start + "{% for m in messages %}{{ marks[m['role']][0] }}"
        "{% if m['content'] is string %}{{ m['content'] }}{% else %}" + content + "{% endif %}"
        "{{ marks[m['role']][1] }}{% endfor %}{% if add_generation_prompt %}" + opening + "{% endif %}"
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
        "max_position_embeddings": 4096,
        "bos_token_id": tok.bos_token_id,
        "eos_token_id": tok.eos_token_id,
        "pad_token_id": tok.pad_token_id,
        **more,
    }


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _tower(kind: str, size: int = S, patch: int = P, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": size,
        "patch_size": patch,
        **more,
    }


def _clip(size: int = S, patch: int = P, **more: Any) -> dict[str, Any]:
    return _tower("clip_vision_model", size, patch, projection_dim=32, **more)


def _siglip(size: int, patch: int, **more: Any) -> dict[str, Any]:
    return _tower("siglip_vision_model", size, patch, vision_use_head=False, **more)


def _square(size: int) -> dict[str, Any]:
    """The shortest edge, then a centre crop."""
    return {"size": {"shortest_edge": size}, "crop_size": {"height": size, "width": size}}


def _llama_tokenizer(template: str, **named: str) -> Any:
    return tokenizer({"eos": "</s>"}, template, {"image_token": "<image>", **named}, bos="<s>")


def _qwen_tokenizer(template: str, **named: str) -> Any:
    return tokenizer({"start": "<|im_start|>", "eos": "<|im_end|>"}, template, {"image_token": "<image>", **named})


def _grids(size: int, most: int) -> list[list[int]]:
    """Pinpoints: every grid of up to `most` x `most` tiles."""
    return [[size * rows, size * columns] for rows in range(1, most + 1) for columns in range(1, most + 1)]


USER = chat(VICUNA, "<image>\n", "ASSISTANT:")
PLAIN = chat(CHATML, "<image>\n", "<|im_start|>assistant\n")


def _llava(kind: str, tied: bool = False, **text: Any) -> tuple[Any, Any]:
    """LLaVA 1.5 with another decoder."""
    from transformers import LlavaConfig, LlavaProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tok = _qwen_tokenizer(PLAIN) if kind.startswith("qwen") else _llama_tokenizer(USER)
    config = LlavaConfig(
        text_config=_text(kind, tok, tie_word_embeddings=tied, **text),
        vision_config=_clip(),
        image_token_index=tok.image_token_id,
        image_seq_length=(S // P) ** 2,
        tie_word_embeddings=tied,
    )
    return config, LlavaProcessor(
        CLIPImageProcessorPil(**_square(S)),
        tok,
        patch_size=P,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,  # the tower's class token, which "default" drops
        chat_template=tok.chat_template,
    )


@family("LLaVA 1.5", "llava-hf/llava-1.5-7b-hf")
def llava_llama() -> tuple[Any, Any]:
    return _llava("llama")


@family("BakLLaVA", "llava-hf/bakLlava-v1-hf")
def llava_mistral() -> tuple[Any, Any]:
    return _llava("mistral", sliding_window=4096)


@family("LLaVA Interleave", "llava-hf/llava-interleave-qwen-0.5b-hf")
def llava_qwen2() -> tuple[Any, Any]:
    from transformers import LlavaConfig, LlavaProcessor
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    size, patch = 51, 6  # a rest of pixels belongs to no patch, as 6 of 384 do with patches of 14
    tok = _qwen_tokenizer(PLAIN)
    config = LlavaConfig(
        text_config=_text("qwen2", tok, tie_word_embeddings=True),
        vision_config=_siglip(size, patch),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_token_index=tok.image_token_id,
        image_seq_length=(size // patch) ** 2,
        tie_word_embeddings=True,
    )
    return config, LlavaProcessor(
        SiglipImageProcessorPil(size={"height": size, "width": size}),
        tok,
        patch_size=patch,
        vision_feature_select_strategy="full",
        chat_template=tok.chat_template,
    )


@family("LLaVA with Qwen3", "")  # decoders without an example: LlavaConfig takes them
def llava_qwen3() -> tuple[Any, Any]:
    return _llava("qwen3", tied=True, head_dim=16)


@family("LLaVA-Gemma", "Intel/llava-gemma-2b")
def llava_gemma() -> tuple[Any, Any]:
    return _llava("gemma", tied=True, head_dim=16, num_key_value_heads=1)


@family("LLaVA with Gemma 2", "")
def llava_gemma2() -> tuple[Any, Any]:
    # The window is shorter than the picture, so that the two kinds of layer differ.
    return _llava("gemma2", tied=True, head_dim=16, sliding_window=32, query_pre_attn_scalar=16)


@family("LLaVA with Phi 2", "")
def llava_phi() -> tuple[Any, Any]:
    return _llava("phi", num_key_value_heads=4)


@family("LLaVA-Phi 3", "xtuner/llava-phi-3-mini-hf")
def llava_phi3() -> tuple[Any, Any]:
    return _llava("phi3", num_key_value_heads=4, sliding_window=2047)


@family("LLaVA with OLMo 2", "")
def llava_olmo2() -> tuple[Any, Any]:
    return _llava("olmo2", num_key_value_heads=4)


GRANITE = {  # of the 2B decoder
    "attention_multiplier": 1 / 16,  # 1 / head_dim, not its root
    "embedding_multiplier": 1.6,  # 12 of weights drawn with 0.02, as of these with 0.15
    "logits_scaling": 8.0,
    "residual_multiplier": 0.22,
}


@family("LLaVA with Granite", "")
def llava_granite() -> tuple[Any, Any]:
    return _llava("granite", tied=True, **GRANITE)


@family("ViP-LLaVA", "llava-hf/vip-llava-7b-hf")
def vipllava() -> tuple[Any, Any]:
    from transformers import LlavaProcessor, VipLlavaConfig
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    marks = {"system": ("", ""), "user": ("###Human: ", ""), "assistant": ("###Assistant: ", "")}
    tok = _llama_tokenizer(chat(marks, "<image>\n", "###Assistant:"))
    config = VipLlavaConfig(
        text_config=_text("llama", tok),
        vision_config=_clip(num_hidden_layers=4),
        vision_feature_layers=[-2, -3, -4, 1],  # several layers side by side, as (-2, -5, -8, -11, 6) of 24
        image_token_index=tok.image_token_id,
        image_seq_length=(S // P) ** 2,
    )
    return config, LlavaProcessor(
        CLIPImageProcessorPil(**_square(S)),
        tok,
        patch_size=P,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tok.chat_template,
    )


NEXT = 36  # pixels of a tile: 6 x 6 tokens
NEXT_GRIDS = [[36, 72], [72, 36], [72, 72], [108, 36], [36, 108]]


@family("LLaVA-NeXT", "llava-hf/llava-v1.6-mistral-7b-hf")
def llava_next() -> tuple[Any, Any]:
    from transformers import LlavaNextConfig, LlavaNextProcessor
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

    tok = _llama_tokenizer(chat(INST, "<image>\n", ""))
    config = LlavaNextConfig(
        text_config=_text("mistral", tok, sliding_window=None, rope_parameters=_rope(1e6)),
        vision_config=_clip(NEXT),
        image_grid_pinpoints=NEXT_GRIDS,
        image_token_index=tok.image_token_id,
        image_seq_length=(NEXT // P) ** 2,
    )
    return config, LlavaNextProcessor(
        LlavaNextImageProcessorPil(**_square(NEXT), image_grid_pinpoints=NEXT_GRIDS),
        tok,
        patch_size=P,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tok.chat_template,
    )


@family("Granite Vision", "ibm-granite/granite-vision-3.2-2b")
def granite_vision() -> tuple[Any, Any]:
    from transformers import LlavaNextConfig, LlavaNextProcessor
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

    size, patch = 51, 10  # 5 x 5 tokens, and a rest of pixels that belong to no patch
    tok = _llama_tokenizer(
        chat({r: (f"<|{r}|>\n", "\n") for r in ("system", "user", "assistant")}, "<image>\n", "<|assistant|>\n")
    )
    config = LlavaNextConfig(
        text_config=_text("granite", tok, tie_word_embeddings=True, **GRANITE),
        vision_config=_siglip(size, patch, num_hidden_layers=4),
        vision_feature_layer=[-4, -3, -2, -1],  # four layers side by side
        vision_feature_select_strategy="full",
        image_grid_pinpoints=_grids(size, 3),
        image_token_index=tok.image_token_id,
        image_seq_length=(size // patch) ** 2,
        tie_word_embeddings=True,
    )
    return config, LlavaNextProcessor(
        LlavaNextImageProcessorPil(
            size={"height": size, "width": size},
            crop_size={"height": size, "width": size},
            image_grid_pinpoints=_grids(size, 3),
        ),
        tok,
        patch_size=patch,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        chat_template=tok.chat_template,
    )


@family("LLaVA-NeXT-Video (as an image model)", "llava-hf/LLaVA-NeXT-Video-7B-hf")
def llava_next_video() -> tuple[Any, Any]:
    from transformers import LlavaNextVideoConfig, LlavaNextVideoProcessor, LlavaNextVideoVideoProcessor
    from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

    tok = _llama_tokenizer(USER, video_token="<video>")
    config = LlavaNextVideoConfig(
        text_config=_text("llama", tok),
        vision_config=_clip(NEXT),
        image_grid_pinpoints=NEXT_GRIDS,
        image_token_index=tok.image_token_id,
        video_token_index=tok.video_token_id,
        image_seq_length=(NEXT // P) ** 2,
    )
    return config, LlavaNextVideoProcessor(
        LlavaNextVideoVideoProcessor(**_square(NEXT)),
        LlavaNextImageProcessorPil(**_square(NEXT), image_grid_pinpoints=NEXT_GRIDS),
        tok,
        patch_size=P,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tok.chat_template,
    )


@family("LLaVA-OneVision", "llava-hf/llava-onevision-qwen2-7b-ov-hf")
def llava_onevision() -> tuple[Any, Any]:
    from transformers import LlavaOnevisionConfig, LlavaOnevisionProcessor, LlavaOnevisionVideoProcessor
    from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil

    # As 384 / 14: 27 patches and a rest of 6 pixels. Here 5 patches of 10 and a rest of 1, so about 2% too.
    size, patch = 51, 10
    square, half = {"height": size, "width": size}, [0.5, 0.5, 0.5]
    tok = _qwen_tokenizer(
        chat(
            {r: (f"<|im_start|>{r} ", "<|im_end|>") for r in ("system", "user", "assistant")},
            "<image>\n",
            "<|im_start|>assistant\n",
            video="<video>\n",
        ),
        video_token="<video>",
    )
    config = LlavaOnevisionConfig(
        text_config=_text("qwen2", tok, rope_parameters=_rope(1e6)),
        vision_config=_siglip(size, patch),
        image_grid_pinpoints=_grids(size, 6),
        image_token_index=tok.image_token_id,
        video_token_index=tok.video_token_id,
    )
    return config, LlavaOnevisionProcessor(
        LlavaOnevisionImageProcessorPil(
            size=square, image_grid_pinpoints=_grids(size, 6), image_mean=half, image_std=half
        ),
        tok,
        LlavaOnevisionVideoProcessor(size=square, image_mean=half, image_std=half),
        num_image_tokens=(size // patch) ** 2,
        vision_feature_select_strategy="full",
        chat_template=tok.chat_template,
    )


@family("Video-LLaVA (as an image model)", "LanguageBind/Video-LLaVA-7B-hf")
def video_llava() -> tuple[Any, Any]:
    from transformers import (
        VideoLlavaConfig,
        VideoLlavaImageProcessor,
        VideoLlavaProcessor,
        VideoLlavaVideoProcessor,
    )

    tok = _llama_tokenizer(USER, video_token="<video>")
    config = VideoLlavaConfig(
        text_config=_text("llama", tok),
        vision_config=_clip(),
        image_token_index=tok.image_token_id,
        video_token_index=tok.video_token_id,
        image_seq_length=(S // P) ** 2,
        video_seq_length=8 * ((S // P) ** 2 + 1),
    )
    return config, VideoLlavaProcessor(
        VideoLlavaImageProcessor(**_square(S)),
        VideoLlavaVideoProcessor(**_square(S)),
        tok,
        patch_size=P,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tok.chat_template,
    )


# The published templates write the beginning of the sequence, and the tokenizers add it again.
PIXTRAL = {"system": ("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), "user": ("[INST]", "[/INST]"), "assistant": ("", "</s>")}


def _pixtral(longest: int, patch: int, merge: int) -> tuple[Any, Any]:
    """The tokenizer, the processor."""
    from transformers import PixtralProcessor
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    words = ["[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]
    template = chat(PIXTRAL, "[IMG]", "", start="{{ bos_token }}", first=False)
    tok = tokenizer({"eos": "</s>", **{w: w for w in words}}, template, bos="<s>")
    return tok, PixtralProcessor(
        PixtralImageProcessorPil(size={"longest_edge": longest}, patch_size={"height": patch, "width": patch}),
        tok,
        patch_size=patch,
        spatial_merge_size=merge,
        chat_template=template,
    )


def _mistral(tok: Any) -> dict[str, Any]:
    """The head is narrower than hidden / heads, as 128 against 160."""
    return _text("mistral", tok, head_dim=12, sliding_window=None, rope_parameters=_rope(1e9))


@family("Pixtral", "mistral-community/pixtral-12b")
def pixtral() -> tuple[Any, Any]:
    from transformers import LlavaConfig

    tok, processor = _pixtral(64, 8, 1)
    config = LlavaConfig(
        text_config=_mistral(tok),
        vision_config=_tower("pixtral", 64, 8),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_token_index=processor.image_token_id,
    )
    return config, processor


@family("Mistral Small 3.1", "mistralai/Mistral-Small-3.1-24B-Instruct-2503")
def mistral3() -> tuple[Any, Any]:
    from transformers import Mistral3Config

    tok, processor = _pixtral(96, 6, 2)
    config = Mistral3Config(
        text_config=_mistral(tok),
        vision_config=_tower("pixtral", 96, 6),
        spatial_merge_size=2,
        image_token_index=processor.image_token_id,
        tie_word_embeddings=False,
    )
    return config, processor
