"""InternVL 2 and 2.5, published with remote code: names and settings for transformers' InternVL class."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ercr.errors import CheckpointError

Settings = Mapping[str, Any]  # of a JSON file
MODEL_TYPE = "internvl_chat"
_DECODERS = {"InternLM2ForCausalLM": "llama", "LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
_CONTEXT, _START, _END = "<IMG_CONTEXT>", "<img>", "</img>"
# what the original's `chat` puts around messages, by the name of the template (InternVL, conversation.py, MIT)
_SYSTEM_2 = (
    "你是由上海人工智能实验室联合商汤科技开发的书生多模态大模型，英文名叫InternVL, 是一个有用无害的人工智能助手。"
)
_SYSTEM_2_5 = (
    "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"
)
_TEMPLATES = {
    "internlm2-chat": (_SYSTEM_2, "<|im_end|>"),
    "Hermes-2": (_SYSTEM_2, "<|im_end|>"),
    "internvl2_5": (_SYSTEM_2_5, "<|im_end|>\n"),
}
_VISION = {
    r"vision_model\.embeddings\.class_embedding": "embeddings.cls_token",
    r"vision_model\.embeddings\.patch_embedding\.(.+)": r"embeddings.patch_embeddings.projection.\1",
    r"vision_model\.embeddings\.position_embedding": "embeddings.position_embeddings",
    r"vision_model\.encoder\.layers\.(\d+)\.attn\.proj\.(.+)": r"encoder.layer.\1.attention.projection_layer.\2",
    r"vision_model\.encoder\.layers\.(\d+)\.attn\.([qk]_norm\..+)": r"encoder.layer.\1.attention.\2",
    r"vision_model\.encoder\.layers\.(\d+)\.norm1\.(.+)": r"encoder.layer.\1.layernorm_before.\2",
    r"vision_model\.encoder\.layers\.(\d+)\.norm2\.(.+)": r"encoder.layer.\1.layernorm_after.\2",
    r"vision_model\.encoder\.layers\.(\d+)\.ls([12])": r"encoder.layer.\1.lambda_\2",
    r"vision_model\.encoder\.layers\.(\d+)\.mlp\.(.+)": r"encoder.layer.\1.mlp.\2",
}
_PROJECTOR = {"mlp1.0": "layer_norm", "mlp1.1": "linear_1", "mlp1.3": "linear_2"}
_INTERNLM2 = {
    "attention.wo": "self_attn.o_proj",
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w3": "mlp.up_proj",
    "feed_forward.w2": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def check(config: Settings) -> None:
    """Refuse what transformers' class cannot represent."""
    decoder = _decoder(config)
    if decoder not in _DECODERS:
        raise CheckpointError(
            f"InternVL with the decoder {decoder} cannot be converted: use one with {', '.join(_DECODERS)}."
        )
    if config.get("ps_version") != "v2":
        raise CheckpointError(
            "InternVL with pixel shuffle version 1 cannot be converted: use a checkpoint with ps_version 'v2'."
        )
    if config.get("template") not in _TEMPLATES:
        raise CheckpointError(
            f"The conversation template {config.get('template')!r} cannot be converted, only {', '.join(_TEMPLATES)}."
        )


def _decoder(config: Settings) -> str:
    return str((config["llm_config"].get("architectures") or ["none"])[0])


def renamed(name: str, tensor: Tensor, config: Settings) -> Iterator[tuple[str, Tensor]]:
    """A tensor of the original under its new name; a fused projection is split into its parts."""
    if name.startswith("vision_model."):
        yield from _of_tower(name, tensor)
    elif name.startswith("mlp1."):
        layer, kind = name.rsplit(".", 1)
        yield f"model.multi_modal_projector.{_PROJECTOR[layer]}.{kind}", tensor
    elif _decoder(config) == "InternLM2ForCausalLM":
        yield from _of_internlm2(name, tensor, config["llm_config"])
    else:
        rest = name.removeprefix("language_model.")
        yield rest.replace("model.", "model.language_model.", 1) if rest.startswith("model.") else rest, tensor


def _of_tower(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    joined = re.fullmatch(r"vision_model\.encoder\.layers\.(\d+)\.attn\.qkv\.(weight|bias)", name)
    if joined:
        for letter, part in zip("qkv", tensor.chunk(3), strict=True):
            yield f"model.vision_tower.encoder.layer.{joined[1]}.attention.{letter}_proj.{joined[2]}", part
        return
    for pattern, replacement in _VISION.items():
        if re.fullmatch(pattern, name):
            yield "model.vision_tower." + re.sub(pattern, replacement, name), tensor
            return
    raise CheckpointError(
        f"The weight {name!r} does not exist in transformers' InternVL, so this checkpoint cannot be converted."
    )


def _of_internlm2(name: str, tensor: Tensor, config: Settings) -> Iterator[tuple[str, Tensor]]:
    top = {
        "language_model.output.weight": "lm_head.weight",
        "language_model.model.tok_embeddings.weight": "model.language_model.embed_tokens.weight",
        "language_model.model.norm.weight": "model.language_model.norm.weight",
    }
    if name in top:
        yield top[name], tensor
        return
    found = re.fullmatch(r"language_model\.model\.layers\.(\d+)\.(.+)\.(weight|bias)", name)
    if found is None or found[2] not in {*_INTERNLM2, "attention.wqkv"}:
        raise CheckpointError(
            f"The weight {name!r} does not exist in transformers' Llama, so this checkpoint cannot be converted."
        )
    layer, module, kind = found.groups()
    prefix = f"model.language_model.layers.{layer}"
    if module != "attention.wqkv":
        yield f"{prefix}.{_INTERNLM2[module]}.{kind}", tensor
        return
    heads, groups = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    # for every key-value head: its query heads, then its key, then its value
    parts = tensor.view(groups, heads // groups + 2, -1, *tensor.shape[1:])
    for letter, part in (("q", parts[:, :-2]), ("k", parts[:, -2:-1]), ("v", parts[:, -1:])):
        yield f"{prefix}.self_attn.{letter}_proj.{kind}", part.flatten(0, 2)


def configuration(config: Settings, image_token: int, end_token: int) -> Any:
    """The configuration of transformers' class."""
    from transformers import InternVLConfig

    vision, text = config["vision_config"], config["llm_config"]
    size = int(config.get("force_image_size") or vision["image_size"])
    ratio = float(config["downsample_ratio"])
    tower = {
        **_picked(vision, "hidden_size intermediate_size num_hidden_layers num_attention_heads hidden_act"),
        **_picked(vision, "layer_norm_eps patch_size num_channels attention_dropout norm_type"),
        "image_size": size,
        "attention_bias": bool(vision.get("qkv_bias", True)),
        "use_qk_norm": bool(vision.get("qk_normalization", False)),
        "use_absolute_position_embeddings": True,
        "use_mask_token": False,
        "use_mean_pooling": True,  # so that there is no norm after the last block
    }
    return InternVLConfig(
        vision_config=tower,
        text_config=_text(text, _DECODERS[_decoder(config)], end_token),
        image_token_id=image_token,
        image_seq_length=int((size // int(vision["patch_size"]) * ratio) ** 2),
        downsample_ratio=ratio,
        vision_feature_layer=int(config.get("select_layer", -1)),
        tie_word_embeddings=bool(text.get("tie_word_embeddings", False)),
        architectures=["InternVLForConditionalGeneration"],
        dtype=config.get("torch_dtype") or text.get("torch_dtype") or "bfloat16",
    )


def _text(text: Settings, kind: str, end_token: int) -> dict[str, Any]:
    scaling = dict(text.get("rope_scaling") or {})
    rope = {"rope_type": scaling.pop("type", scaling.pop("rope_type", "default")), **scaling}
    bias = {"attention_bias": bool(text.get("bias", False))} if kind == "llama" else {}
    return {
        "model_type": kind,
        **_picked(text, "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads"),
        **_picked(text, "hidden_act max_position_embeddings rms_norm_eps vocab_size bos_token_id pad_token_id"),
        **_picked(text, "use_sliding_window sliding_window max_window_layers"),
        **bias,
        "eos_token_id": end_token,
        "rope_parameters": {**rope, "rope_theta": float(text.get("rope_theta", 10000.0))},
        "tie_word_embeddings": bool(text.get("tie_word_embeddings", False)),
    }


def _picked(source: Settings, names: str) -> dict[str, Any]:
    return {name: source[name] for name in names.split() if source.get(name) is not None}


def tokenizer(folder: Path, config: Settings) -> Any:
    """The tokenizer as a fast one, with the attributes that the InternVL processor reads."""
    import transformers

    names = {"start_image_token": _START, "end_image_token": _END, "context_image_token": _CONTEXT}
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if (folder / "tokenizer.model").is_file() and not (folder / "tokenizer.json").is_file():
        from ercr.models.convert.sentencepiece_bpe import fast_tokenizer

        added = {
            int(index): (str(token["content"]), bool(token["special"]))
            for index, token in settings["added_tokens_decoder"].items()
        }
        bos = _plain(settings["bos_token"])
        made = fast_tokenizer(folder / "tokenizer.model", added, bos if settings.get("add_bos_token", True) else None)
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=made,
            bos_token=bos,
            eos_token=_plain(settings["eos_token"]),
            unk_token=_plain(settings["unk_token"]),
            pad_token=_plain(settings["pad_token"]),
            model_max_length=int(settings.get("model_max_length", 8192)),
            clean_up_tokenization_spaces=False,  # its decoder does this already
            padding_side="left",
            video_token="[UNUSED_TOKEN_145]",  # an unused token, because this decoder has none for videos
            **names,
        )
    kind = getattr(transformers, str(settings.get("tokenizer_class")).removesuffix("Fast"), None)
    if kind is None:
        raise CheckpointError(
            f"The tokenizer {settings.get('tokenizer_class')!r} is unknown: transformers has no such class."
        )
    return kind.from_pretrained(folder, padding_side="left", video_token="<|video_pad|>", **names)


def _plain(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])


def image_processor(config: Settings) -> dict[str, Any]:
    """Settings of the image processor that prepare images as the original does: tiles of one size, then a thumbnail."""
    size = int(config.get("force_image_size") or config["vision_config"]["image_size"])
    tiled = bool(config.get("dynamic_image_size", True))
    return {
        "image_processor_type": "GotOcr2ImageProcessor",
        "crop_to_patches": tiled,
        "min_patches": int(config.get("min_dynamic_patch", 1)),
        "max_patches": int(config.get("max_dynamic_patch", 12)) if tiled else 1,
        "size": {"height": size, "width": size},
        "do_convert_rgb": True,
        "do_resize": True,
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
    }


def chat_template(config: Settings) -> str:
    """The template of what the original's `chat` builds; its system message unless the conversation has one."""
    system, end = _TEMPLATES[str(config["template"])]
    system = str(config.get("system_message", system))
    end = end.replace("\n", "\\n")
    return (
        "{% if messages[0]['role'] != 'system' %}"
        f"{{{{ '<|im_start|>system\\n{system}{end}' }}}}"
        "{% endif %}"
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\\n' }}"
        "{% if message['content'] is string %}{{ message['content'] }}"
        "{% else %}{% for part in message['content'] %}"
        f"{{% if part['type'] == 'image' %}}{{{{ '{_CONTEXT}\\n' }}}}"
        "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}"
        "{% endfor %}{% endif %}"
        f"{{{{ '{end}' }}}}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )


IMAGE_TOKEN = _CONTEXT
END_TOKEN = "<|im_end|>"
