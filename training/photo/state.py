"""Trained parts on disk, in files of at most 16 MiB, so that a training can be resumed on another machine."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .model import PhotoModel

_LIMIT = 15 * 2**20


def save(model: PhotoModel, folder: Path) -> None:
    """Everything but the base language model, in single precision."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, value in model.state_dict().items():
        bytes_ = value.numel() * 4
        if size + bytes_ > _LIMIT and files[-1]:
            files.append({})
            size = 0
        size += bytes_
        files[-1][name] = value.detach().float().cpu().contiguous()
    for number, part in enumerate(files):
        save_file(part, folder / f"new-{number:02d}.safetensors")
    # only when all of the new state is there does the old one go
    for old in folder.glob("state-*.safetensors"):
        old.unlink()
    for new in folder.glob("new-*.safetensors"):
        new.rename(folder / new.name.replace("new", "state"))


def load(model: PhotoModel, *folders: Path) -> bool:
    """Take a saved state up, or the mean of several that one training passed through; False where one is missing."""
    states = [_read(folder) for folder in folders]
    if not all(states):
        return False
    model.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    return True


def _read(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("state-*.safetensors")):
        found |= load_file(file)
    return found
