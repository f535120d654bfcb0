"""The oldest supported transformers gives the same explanations as the pinned one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
OLDEST = Path(os.environ.get("ERCR_OLDEST", Path(sys.prefix) / "oldest"))


def explain(tmp_path, picture, folders, name, extra):
    out = tmp_path / f"{name}.npz"
    paths = os.pathsep.join([*extra, str(ROOT / "src")])
    run = subprocess.run(
        [sys.executable, str(ROOT / "tests/explain_all.py"), str(picture), str(out), *map(str, folders)],
        env={**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return np.load(out)


@pytest.mark.skipif(not OLDEST.is_dir(), reason="the oldest supported transformers is not installed beside this one")
def test_both_supported_ends_of_transformers_give_the_same_explanations(checkpoint, picture, tmp_path):
    source = tmp_path / "picture.png"
    picture.save(source)
    folders = [checkpoint(name) for name in ("qwen2_vl", "qwen2_5_vl", "llava", "internvl")]
    new = explain(tmp_path, source, folders, "new", [])
    old = explain(tmp_path, source, folders, "old", [str(OLDEST)])
    assert str(old["version"]) != str(new["version"])
    for key in set(new.files) - {"version"}:
        np.testing.assert_allclose(old[key], new[key], atol=1e-4, err_msg=key)
