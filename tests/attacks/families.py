"""Tiny random checkpoints of many types through the commands: `python -m tests.attacks.families [NAMES]`.

Each is served (`ercr serve --model FOLDER`) and asked for explanations of a picture by several methods, and evaluated
(`ercr evaluate --limit 3`). Nothing may crash: an answer is an explanation or one sentence, every row has a status, and
the server goes on. Loopback only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from tests.families.torchvision_here import make_importable

make_importable()

import httpx

from ercr.datasets.scenes import scene
from tests.attacks import asking
from tests.attacks.pictures import sentence_trouble
from tests.families.registry import families, save
from tests.web.conftest import Server

ROOT = Path(__file__).parents[2]
NAMES = (
    *("qwen2_vl", "qwen3_vl", "qwen3_5", "internvl3", "llava_phi", "llava_onevision", "pixtral", "gemma3", "paligemma"),
    *("idefics3", "molmo2", "llama4", "glm4v", "mllama", "florence2"),
)
METHODS = ("ercr", "attention", "attn_lrp", "occlusion:grid=3")
# the wheel without compiled operators can be imported in every process of this attack
CUSTOMIZE = "from tests.families.torchvision_here import make_importable\nmake_importable()\n"


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.attacks.families")
    options.add_argument("names", nargs="*")
    given = options.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "sitecustomize.py").write_text(CUSTOMIZE)
        os.environ["PYTHONPATH"] = f"{place}{os.pathsep}{ROOT}"
        for name in given.names or NAMES:
            home = Path(place) / name
            home.mkdir()
            folder = save(families()[name], home / "model")
            found = [*_served(folder, home), *_evaluated(folder, home)]
            wrong += len(found)
            print(f"{name:20} {'fine' if not found else '; '.join(found)}", flush=True)
    print(f"{len(given.names or NAMES)} types, {wrong} wrong")
    return 1 if wrong else 0


def _served(folder: Path, home: Path) -> list[str]:
    """What went wrong with a server of this model."""
    picture = home / "scene.png"
    scene(5895).image.save(picture)
    server, wrong = Server(home, "--model", str(folder)), list[str]()
    try:
        with httpx.Client(base_url=server.url, timeout=300) as http:
            file = asking.upload(http, picture)
            for method in (name.partition(":")[0] for name in METHODS):
                try:
                    _, words = asking.explain(http, file, method, 4, model=folder.name)
                    if not all(0 <= value <= 1 for word in words for row in word["map"] for value in row):
                        wrong.append(f"{method}: values outside 0 to 1")
                except asking.Trouble as error:
                    told = str(error).partition('", "duration"')[0].rpartition('"error": "')[2]  # its end, at least
                    if sentence_trouble(told):
                        wrong.append(f"{method}: {told}")
    finally:
        status = server.stop()
    if status not in (0, -15, 143):
        wrong.append(f"the server ended with {status}")
    if "Traceback" in server.log.read_text():
        wrong.append("a traceback in the server's log")
    return wrong


def _evaluated(folder: Path, home: Path) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "ercr",
        "evaluate",
        "--model",
        str(folder),
        "--dataset",
        "scenes:3",
        "--limit",
        "3",
    ]
    command += ["--methods", ",".join(METHODS), "--max-new-tokens", "4", "--out", str(home / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or "Traceback" in done.stderr:
        return [f"evaluate ended with {done.returncode}: {done.stderr.strip()[-300:]}"]
    return []


if __name__ == "__main__":
    sys.exit(main())
