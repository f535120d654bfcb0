"""Hostile datasets: `python -m tests.attacks.datasets [--count 1000] [--seed 0]`.

Each is a folder in one of the known layouts with something wrong in it: pipes and devices for files, names that lead
out of the folder, damaged or deeply nested annotations, hostile pictures and masks, folders and links in their places.
Opening it, naming its samples and reading each must give samples or one kind of error in one sentence, in bounded
time and memory; nothing outside the folder may be read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from ercr.datasets.registry import open_dataset
from ercr.errors import InputError
from tests.attacks.mutants import ESCAPES, claims, foreign, mutated, sound
from tests.attacks.pictures import Trap, sentence_trouble

MEMORY = 1000  # MB
PATIENCE = 60  # seconds for one dataset
SECRET = (7, 77, 177)  # the colour of a picture outside the folder: no sample may show it
_JUNK = (None, True, -1, 10**30, 1.5, float("inf"), "", "x\0y", "\ud800", ESCAPES, "a" * 5000, [], [[]], {}, {"a": "b"})
_COCO = ("annotations/instances_minival2014.json", "annotations/captions_val2014.json")
_PICTURES = ("image/000000000007.jpg", "seg_label/000000000007.png")


class Maker:
    """Makes hostile datasets in a folder, one after another."""

    def __init__(self, place: Path, rng: random.Random) -> None:
        self.place, self.rng = place, rng
        self.root = place / "data"
        self.secret = place / "secret.png"
        _picture(SECRET).save(self.secret)
        self._whole, self._foreign, self._claims = (
            list(sound().values()),
            list(foreign().values()),
            list(claims(65_500)),
        )

    def make(self) -> str:
        """A dataset with one to three things wrong with it, as `open_dataset` takes it."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        kind = self.rng.choice(("coco", "grandf", "openpsg"))
        files = self._coco() if kind == "coco" else self._listed()
        for _ in range(self.rng.randrange(1, 4)):
            self._spoil(self.root / self.rng.choice(files))
        return f"{kind}:{self.root}"

    def _coco(self) -> list[str]:
        for name in ("annotations", "image", "seg_label"):
            (self.root / name).mkdir()
        name = self._name() if self.rng.random() < 0.5 else "000000000007.jpg"
        image = {"id": self._junk(7), "file_name": name, "width": 48, "height": 36}
        instances = {
            "images": [image, {"id": 8}],
            "categories": [{"id": self._junk(3), "name": "dog"}],
            "annotations": [],
        }
        captions = {"annotations": [{"image_id": self._junk(7), "caption": self._junk("a dog")}]}
        for path, content in zip(_COCO, (instances, captions), strict=True):
            (self.root / path).write_text(json.dumps(content))
        self._write(*_PICTURES)
        return [*_COCO, *_PICTURES]

    def _listed(self) -> list[str]:
        entries = [[self._name(), "A dog.", self._name(), {"dog": self._junk(3)}] for _ in range(3)]
        entries.append([self._junk("a.png"), self._junk("A dog."), self._junk("m.png"), self._junk({"dog": 3})])
        (self.root / "anno.json").write_text(json.dumps(entries))
        self._write("a.png", "m.png")
        return ["anno.json", "a.png", "m.png"]

    def _write(self, picture: str, mask: str) -> None:
        _picture((9, 9, 9)).save(self.root / picture)
        _picture((3, 3, 3)).convert("L").save(self.root / mask)

    def _name(self) -> str:
        """A name that leads out of the folder, or to something that is not a picture."""
        return self.rng.choice(
            (
                "a.png",
                "../secret.png",
                str(self.secret),
                "x/../../secret.png",
                "..\\secret.png",
                "./../secret.png",
                f"file://{self.secret}",
                "/dev/zero",
                "/proc/self/mem",
                "C:\\secret.png",
                ".",
                "",
                "anno.json",
                ESCAPES,
                "a\0.png",
                "\ud800.png",
                "https://127.0.0.1:9/a.png",
            )
        )

    def _junk(self, right: Any) -> Any:
        return right if self.rng.random() < 0.7 else self.rng.choice(_JUNK)

    def _spoil(self, path: Path) -> None:
        """Put something else in a file's place, or damage what is there."""
        plain = path.is_file() and not path.is_symlink() and path.stat().st_size < 10**6
        data = path.read_bytes() if plain else b"{}"
        kind = self.rng.randrange(11)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        path.unlink(missing_ok=True)
        if kind == 0:
            os.mkfifo(path)
        elif kind == 1:
            path.symlink_to(self.rng.choice(("/dev/zero", "/dev/full", "/dev/null", "nowhere", path.name, "..")))
        elif kind == 2:
            path.mkdir()
        elif kind == 3:
            path.write_bytes(
                self.rng.choice((b"[" * 200_000, b'{"a":' * 100_000, b"", b"\xff\xfe", b"NaN", b"9" * 9999))
            )
        elif kind == 4:
            path.write_bytes(self.rng.choice(self._foreign))
        elif kind == 5:
            path.write_bytes(self.rng.choice(self._claims))
        elif kind == 6:  # a hole of 4 GB
            with path.open("wb") as file:
                file.truncate(2**32)
        elif kind == 7:
            return  # it is missing
        else:
            path.write_bytes(mutated(data or b"x", self.rng.choice(self._whole), self.rng))


def _picture(colour: tuple[int, int, int]) -> Any:
    from PIL import Image

    return Image.new("RGB", (48, 36), colour)


def read_all(spec: str) -> tuple[str, list[str]]:
    """How a dataset ends (`opened` or `refused`), and everything that is wrong with that."""
    wrong: list[str] = []
    try:
        samples = open_dataset(spec)
        samples.fingerprint(len(samples))  # type: ignore[attr-defined]
    except InputError as error:
        return "refused", [trouble for trouble in [sentence_trouble(str(error))] if trouble]
    for index in range(len(samples)):
        samples.name(index)  # type: ignore[attr-defined]
        try:
            sample = samples[index]
        except InputError as error:
            wrong += [trouble for trouble in [sentence_trouble(str(error))] if trouble]
            continue
        if sample.image.getpixel((0, 0)) == SECRET:
            wrong.append("a picture outside the folder was read")
    return "opened", wrong


def attack(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """So many datasets: how they end and what is wrong."""
    ends, wrong = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        trap, maker = Trap(Path(folder)), Maker(Path(folder), random.Random(seed))
        for number in range(count):
            spec = maker.make()
            signal.alarm(PATIENCE)
            try:
                end, trouble = read_all(spec)
            except Exception as error:
                end, trouble = "failed", [f"{type(error).__name__}: {error}"]
            finally:
                signal.alarm(0)
            ends[end] += 1
            wrong += [f"dataset {number} ({spec.split(':')[0]}): {what}" for what in trouble]
        wrong += [f"{name} was started" for name in trap.calls()]
    return ends, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    ends, wrong = attack(options.count, options.seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if peak > MEMORY:
        wrong.append(f"{peak:.0f} MB were held")
    print(*wrong[:20], sep="\n")
    print(f"{options.count} datasets: {dict(sorted(ends.items()))}, at most {peak:.0f} MB; {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
