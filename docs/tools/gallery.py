"""Make the pictures of the gallery and its page, with the packaged models. No network; some minutes on a CPU.

    python docs/tools/gallery.py          all of them
    python docs/tools/gallery.py tokens   only some, by name

Every picture is made by the command that stands beside it. `made.json` keeps the hashes of the models' weights, so that
a test can tell when the pictures are out of date.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).resolve().parents[1]
FOLDER = DOCS / "images" / "gallery"
_WIDTH = 1100  # pixels
_QUALITY = 86  # of WebP: letters stay sharp, and a picture stays below 100 kB


@dataclass(frozen=True)
class Entry:
    """One picture: its name, its heading, what to see in it, and the arguments of `ercr` that make it."""

    name: str
    title: str
    text: str
    command: str


ENTRIES = (
    Entry(
        "methods",
        "All methods",
        "One scene, one caption, all methods, each map against its own peak (the number in the corner). The model was "
        "trained so that the logit lens sees its nouns, which favours CAM, TAM and ERCR; see its "
        "[card](models/scenes-qwen2vl.md).",
        "figure methods --methods all",
    ),
    Entry(
        "ablation",
        "The parts of ERCR",
        "Values as they are. Without a context the function words light up everywhere; with any of the three contexts "
        "little of that is left. Several views round off what one view shows.",
        "figure ablation",
    ),
    Entry(
        "tokens",
        "An answer token by token",
        "Every token of the caption with its map and its probability given what came before.",
        "figure tokens --seed 102",
    ),
    Entry(
        "faithfulness",
        "Deletion and insertion",
        "What the model is shown when the highest pixels of each map are deleted, or alone inserted, and how probable "
        "the word then is. Straight edges are places where a map is flat: there pixels go in reading order.",
        "figure faithfulness --seed 102",
    ),
    Entry(
        "given",
        "Words that are not in the picture",
        "The answer was given, not generated, and one of its nouns is not in the picture. Values as they are.",
        'figure methods --methods cam,ercr --scale value --answer "A cat above a tree and a zebra." '
        "--words cat,tree,zebra",
    ),
    Entry(
        "film",
        "A clip",
        "A drawn clip and what the packaged model for clips says of it: one column for each part of the time, one row "
        "for each word. A token of this model covers two frames; the first of them is shown.",
        "figure film --seed 30",
    ),
    Entry(
        "llava",
        "Another family",
        "The packaged model of LLaVA's family on the same scene: a fixed canvas, so views are pasted on it smaller.",
        "figure methods --model scenes-llava",
    ),
    Entry(
        "internvl",
        "And another",
        "The packaged model of InternVL's family on the same scene.",
        "figure methods --model scenes-internvl",
    ),
)


def make(entry: Entry) -> str:
    """Run the command and keep its picture; what the model said."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "figure.png"
        program = [sys.executable, "-m", "ercr", *shlex.split(entry.command), "--out", str(target), "--dpi", "200"]
        done = subprocess.run(program, check=True, capture_output=True, text=True)
        picture = Image.open(target).convert("RGB")
        height = round(picture.height * _WIDTH / picture.width)
        small = picture.resize((_WIDTH, height), resample=Image.Resampling.LANCZOS)
        FOLDER.mkdir(parents=True, exist_ok=True)
        small.save(FOLDER / f"{entry.name}.webp", quality=_QUALITY, method=6)
    return done.stdout.strip()


def page(said: dict[str, str]) -> str:
    parts = [
        "# Gallery",
        "<!-- written by docs/tools/gallery.py -->",
        "Pictures by the packaged models on drawn scenes, made on a CPU by the commands beside them. The pictograms "
        "are OpenMoji's (CC BY-SA 4.0). [Figures](figures.md) explains how to read and make such pictures.",
    ]
    for entry in ENTRIES:
        alt = f"{entry.title}: {said[entry.name]}"
        parts += [f"## {entry.title}", entry.text, f"```\nercr {entry.command}\n```"]
        parts += [f"![{alt}](images/gallery/{entry.name}.webp)", f"The answer: “{said[entry.name]}”"]
    parts += [
        "## A page to explore",
        "`ercr demo` writes one to `demo/report.html`, and `explanation.to_html(…)` one for any explanation. Point at "
        "a word, choose a phrase, step through what the method did, or put methods side by side with `ercr.compare`.",
    ]
    return "\n\n".join(parts) + "\n"


def weights() -> dict[str, str]:
    """Hashes of the weights of the packaged models that know drawn pictures."""
    from ercr.zoo import CLIPS, packaged, scene_models

    return {
        name: hashlib.sha256(b"".join(f.read_bytes() for f in sorted(folder.glob("*.safetensors")))).hexdigest()
        for name, folder in packaged().items()
        if name in (*scene_models(), CLIPS)
    }


def main(wanted: list[str]) -> None:
    record = FOLDER / "made.json"
    known = json.loads(record.read_text())["said"] if record.exists() else {}
    for entry in ENTRIES:
        if not wanted or entry.name in wanted or entry.name not in known:
            known[entry.name] = make(entry)
            print(f"{entry.name}: {known[entry.name]}", flush=True)
    record.write_text(json.dumps({"weights": weights(), "said": known}, indent=1, ensure_ascii=False) + "\n")
    (DOCS / "gallery.md").write_text(page(known), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
