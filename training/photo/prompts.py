"""The prompts of the training, in the form of the model's chat template."""

from __future__ import annotations

from typing import Any

from ercr.datasets.sample import PROMPT as CAPTION

PROMPTS = (
    CAPTION,
    "Describe this image.",
    "Describe this picture in one sentence.",
    "What is in this picture?",
    "What do you see?",
)
BEFORE = "<|im_start|>user\n"
AFTER = "<|im_end|>\n<|im_start|>assistant\n"


def before_ids(tokenizer: Any) -> list[int]:
    """What stands before the picture."""
    return list(tokenizer(BEFORE, add_special_tokens=False).input_ids)


def prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    """What stands between the picture and the answer."""
    return list(tokenizer(f"\n{prompt}{AFTER}", add_special_tokens=False).input_ids)
