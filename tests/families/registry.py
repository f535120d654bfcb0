"""What a tiny checkpoint of a family is, and where they are found."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Family:
    """A family: its published name, an example on the hub, and a maker of a configuration and a processor."""

    name: str  # short, unique, as a file name: "llava_next"
    title: str  # as people write it: "LLaVA-NeXT"
    checkpoint: str  # an example on the hub
    make: Callable[[], tuple[Any, Any]]  # a configuration (or a model) and its processor
    cells: bool = True  # whether its visual tokens have cells on the picture
    place: str = ""  # what people write for the picture where there is no template


FAMILIES: dict[str, Family] = {}


def family(
    title: str, checkpoint: str, name: str | None = None, cells: bool = True, place: str = ""
) -> Callable[[Any], Any]:
    """Decorator: register a maker under its own name, or `name`."""

    def add(make: Callable[[], tuple[Any, Any]]) -> Callable[[], tuple[Any, Any]]:
        known = name or make.__name__
        assert known not in FAMILIES, known
        FAMILIES[known] = Family(known, title, checkpoint, make, cells, place)
        return make

    return add


def families() -> dict[str, Family]:
    """All families; loads every file of this folder."""
    package = importlib.import_module("tests.families")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in ("registry", "__main__"):
            importlib.import_module(f"tests.families.{module.name}")
    return FAMILIES


def save(known: Family, folder: Path, seed: int = 0) -> Path:
    """Write the family's tiny checkpoint as a folder that transformers' Auto classes load."""
    from transformers import AutoModelForImageTextToText, PretrainedConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(seed)
    made, processor = known.make()
    model = AutoModelForImageTextToText.from_config(made) if isinstance(made, PretrainedConfig) else made
    with torch.no_grad():
        for parameter in model.eval().parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)  # the default 0.02 gives states too alike to tell cells apart
    tokenizer = processor.tokenizer
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
