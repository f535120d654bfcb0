"""Our inputs equal the official processors', which need torchvision: run in a process that can have it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BESIDE = Path(os.environ.get("ERCR_TORCHVISION", Path(sys.prefix) / "torchvision"))


HAS_TORCHVISION = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None and not BESIDE.is_dir(), reason="torchvision is not installed"
)


def beside_torchvision(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script of this folder where torchvision can be imported."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), str(BESIDE)])
    return subprocess.run(
        [sys.executable, str(ROOT / "tests/models" / script)],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )


@HAS_TORCHVISION
def test_inputs_equal_the_official_processors_tensor_for_tensor():
    run = beside_torchvision("official_inputs.py")
    assert run.returncode == 0, run.stdout + run.stderr[-3000:]
    assert run.stdout.count(": equal") == 14


@HAS_TORCHVISION
@pytest.mark.slow
def test_several_pictures_and_clips_equal_the_official_processors_and_generate():
    run = beside_torchvision("official_pieces.py")
    assert run.returncode == 0, run.stdout + run.stderr[-3000:]
    assert run.stdout.count(": equal") == 5 + 3 + 1  # families, those that need no torchvision, the choice of frames
