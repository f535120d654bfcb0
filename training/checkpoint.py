"""Keeps a training's whole state in files of at most 15 MiB; independent of its content."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

_PART = 15 * 2**20


def save_parts(state: dict[str, Any], folder: Path) -> None:
    """Writes the state as numbered parts; a half-written save never replaces a whole one."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    number = (len(data) + _PART - 1) // _PART
    for i in range(number):
        (folder / f"part-{i:03d}.new").write_bytes(data[i * _PART : (i + 1) * _PART])
    for old in folder.glob("part-*.pt"):
        old.unlink()
    for i in range(number):
        (folder / f"part-{i:03d}.new").rename(folder / f"part-{i:03d}.pt")


def load_parts(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The state last saved, or None where there is none."""
    parts = sorted(folder.glob("part-*.pt"))
    if not parts:
        return None
    data = b"".join(part.read_bytes() for part in parts)
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    return state
