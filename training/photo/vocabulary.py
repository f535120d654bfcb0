"""The tokenizer of the packaged model: the language model's own, with one unused token read as the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .base import place

_UNUSED, _IMAGE = "<filename>", "<image>"
_SETTINGS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|im_end|>",
    "pad_token": "<|endoftext|>",
    "extra_special_tokens": {"image_token": _IMAGE},
    "clean_up_tokenization_spaces": False,
    "model_max_length": 2048,
}


def write_tokenizer(source: str, out: Path) -> None:
    """From a GGUF file, a folder or the hub to a folder that `transformers` reads."""
    from transformers import AutoTokenizer

    name, options = place(source)
    out.mkdir(parents=True, exist_ok=True)
    AutoTokenizer.from_pretrained(name, **options).save_pretrained(out)
    file = out / "tokenizer.json"
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for token in content["added_tokens"]:
        if token["content"] == _UNUSED:
            token["content"] = _IMAGE
    known = content["model"]["vocab"]
    known[_IMAGE] = known.pop(_UNUSED)
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    (out / "tokenizer_config.json").write_text(json.dumps(_SETTINGS, indent=1))
    (out / "chat_template.jinja").unlink(missing_ok=True)
