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


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None and not BESIDE.is_dir(), reason="torchvision is not installed"
)
def test_inputs_equal_the_official_processors_tensor_for_tensor():
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), str(BESIDE)])
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests/models/official_inputs.py")],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-3000:]
    assert run.stdout.count(": equal") == 14
