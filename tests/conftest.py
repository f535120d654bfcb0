"""Shared fixtures: tiny checkpoints of every family, loaded once, and a picture with structure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from PIL import Image

import ercr
from tests import tiny

torch.set_num_threads(1)
# a machine that is busy is no defect of the code under test
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
FAMILIES = ("qwen2_vl", "qwen2_5_vl", "llava", "llava_pad", "internvl", "internvl_single", "internvl35")


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny checkpoint, by its name in `tiny.MAKERS`."""
    return cache(lambda name: tiny.build(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session")
def load(checkpoint: Callable[[str], Path]) -> Callable[..., ercr.Explainer]:
    """An explainer on a tiny checkpoint, by name; float64 leaves no rounding to argue about."""
    return cache(lambda name, dtype="float32": ercr.Explainer.from_pretrained(str(checkpoint(name)), dtype=dtype))


@pytest.fixture(scope="session")
def picture() -> Image.Image:
    """Blobs of colour on noise, wider than high."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[0:90, 0:130]
    base = np.stack([128 + 80 * np.sin(x / 9), 128 + 80 * np.cos(y / 7), (x + y) % 255], -1)
    return Image.fromarray(np.clip(base + rng.normal(0, 12, base.shape), 0, 255).astype(np.uint8))


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `ercr …` in this process: exit code, standard output, standard error."""
    from ercr.commands import cli

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["ercr", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def photo(tmp_path, picture):
    """A picture as a file."""
    path = tmp_path / "photo.png"
    picture.save(path)
    return path
