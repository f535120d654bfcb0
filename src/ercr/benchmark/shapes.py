"""Models with random weights in the shapes of published ones, to measure time and memory without a download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ercr.errors import InputError, nearest
from ercr.models.base import Adapter
from ercr.models.loading import wrap_model

_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}IMAGE{% elif c['type'] == 'video' %}VIDEO{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
Parts = tuple[Any, Any, Any]  # configuration, tokenizer, image processor


def tokenizer(image: str, wrapped: str, named: dict[str, str], clip: str = "") -> Any:
    """A byte-level tokenizer without merges: each letter is one token, which does not affect the measurements."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_ = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_.decoder = decoders.ByteLevel()
    bytes_.add_special_tokens(["<pad>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", image])
    bytes_.add_special_tokens([word for word in named.values() if bytes_.token_to_id(word) is None])
    return PreTrainedTokenizerFast(
        tokenizer_object=bytes_,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        chat_template=_CHAT.replace("IMAGE", wrapped).replace("VIDEO", clip),
        padding_side="left",
        extra_special_tokens=named,
    )


def _pictures(name: str, **options: Any) -> Any:
    """The family's image processor, in its Pillow form where torchvision is missing."""
    import transformers
    from transformers.utils import is_torchvision_available

    return getattr(transformers, name if is_torchvision_available() else name + "Pil")(**options)


def _qwen2_vl(text: dict[str, Any], tied: bool) -> Parts:
    from transformers import Qwen2VLConfig

    image, video = "<|image_pad|>", "<|video_pad|>"
    wrapped, clip = (f"<|vision_start|>{token}<|vision_end|>" for token in (image, video))
    words = tokenizer(image, wrapped, {"image_token": image, "video_token": video}, clip)
    of = words.convert_tokens_to_ids
    config = Qwen2VLConfig(
        text_config={
            "max_position_embeddings": 32768,
            "rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24], "rope_theta": 1e6},
            **text,
        },
        vision_config={"depth": 32, "embed_dim": 1280, "hidden_size": text["hidden_size"], "num_heads": 16},
        tie_word_embeddings=tied,
        image_token_id=of(image),
        video_token_id=of(video),
        vision_start_token_id=of("<|vision_start|>"),
        vision_end_token_id=of("<|vision_end|>"),
    )
    return config, words, _pictures("Qwen2VLImageProcessor")


def _qwen2_vl_2b() -> Parts:
    text = {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    }
    return _qwen2_vl(text, tied=True)


def _qwen2_vl_7b() -> Parts:
    text = {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    }
    return _qwen2_vl(text, tied=False)


def _llava_7b() -> Parts:
    from transformers import LlavaConfig

    words = tokenizer("<image>", "<image>\n", {"image_token": "<image>"})
    config = LlavaConfig(
        text_config={"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096},
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 336,
            "patch_size": 14,
            "projection_dim": 768,
        },
        image_token_id=words.convert_tokens_to_ids("<image>"),
        image_seq_length=576,
        tie_word_embeddings=False,
    )
    size = {"height": 336, "width": 336}
    pictures = _pictures("LlavaImageProcessor", size={"shortest_edge": 336}, crop_size=size, do_pad=False)
    return config, words, pictures


def _internvl3_2b() -> Parts:
    from transformers import InternVLConfig

    image = "<IMG_CONTEXT>"
    named = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": image}
    words = tokenizer(image, image + "\n", {**named, "video_token": "<video>"}, "<video>\n")
    config = InternVLConfig(
        text_config={
            "model_type": "qwen2",
            "vocab_size": 151674,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32768,
        },
        vision_config={"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
        image_token_id=words.convert_tokens_to_ids(image),
        image_seq_length=256,
        tie_word_embeddings=True,
    )
    size = {"height": 448, "width": 448}
    return config, words, _pictures("GotOcr2ImageProcessor", size=size, min_patches=1, max_patches=12)


SHAPES: dict[str, Callable[[], Parts]] = {
    "qwen2-vl-2b": _qwen2_vl_2b,
    "qwen2-vl-7b": _qwen2_vl_7b,
    "llava-1.5-7b": _llava_7b,
    "internvl3-2b": _internvl3_2b,
}


def random_adapter(shape: str, device: str, dtype: torch.dtype) -> Adapter:
    """A model with random weights in its family's adapter; it has no end token, so answers have full length."""
    from transformers import AutoModelForImageTextToText

    if shape not in SHAPES:
        raise InputError(f"There is no shape {shape!r}; there are {', '.join(SHAPES)}.{nearest(shape, SHAPES)}")
    config, words, pictures = SHAPES[shape]()
    with torch.device(device):
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(config, dtype=dtype).eval()
    model.tie_weights()
    model.generation_config.pad_token_id = words.pad_token_id
    model.generation_config.eos_token_id = None
    return wrap_model(model, (words, pictures))
