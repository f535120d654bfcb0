"""The base language model, SmolLM2-135M-Instruct: a GGUF file, a folder or a hub id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def place(source: str) -> tuple[str, dict[str, str]]:
    """Name and options by which `from_pretrained` finds it."""
    path = Path(source)
    return (str(path.parent), {"gguf_file": path.name}) if path.suffix == ".gguf" else (source, {})


def language_model(source: str) -> Any:
    from transformers import AutoModelForCausalLM

    name, options = place(source)
    return AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **options)
