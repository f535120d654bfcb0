"""Mutated `.ercr` files loaded and used: `python -m tests.attacks.explanations [--count 10000] [--seed 0]`.

Bytes are changed, cut and added, and headers rewritten with values of other types, sizes and depths. A file is refused
by one error in one sentence, or everything that an explanation can do works: words, heat maps, overlay, page, arrays,
terminal, comparison. At most 1 GB may ever be held, and no file may take a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import random
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import ercr
from ercr.errors import FileFormatError
from tests.attacks.mutants import mutated
from tests.attacks.pictures import sentence_trouble

MEMORY = 1000  # MB
PATIENCE = 60  # seconds for one file
_JUNK: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**30, 2**31, 1.5, -0.5, 1e308, "", "x", "\ud800", "a" * 5000, [], [[]], {}, {"a": "b"}),
    *(300_000, [300_000, 300_000], "1e999999999", "1/0", "-1/3", float("nan"), float("inf"), [1, 2, 3, 4], "F64"),
)


_NUMBERS = (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f", b"\0\0\x80\xbf", bytes(4), b"\0\0\x80\x3e")


class Maker:
    """Makes hostile files from one sound file's bytes."""

    def __init__(self, data: bytes, rng: random.Random) -> None:
        size = int.from_bytes(data[:8], "little")
        self.data, self.rng, self.body = data, rng, data[8 + size :]
        self.described = json.loads(data[8 : 8 + size])
        self.header = json.loads(self.described["__metadata__"]["ercr"])

    def make(self) -> bytes:
        if self.rng.random() < 0.2:
            return mutated(self.data, self.data, self.rng)
        described, header, body = copy.deepcopy(self.described), copy.deepcopy(self.header), bytearray(self.body)
        for _ in range(self.rng.choice((1, 1, 2))):
            kind = self.rng.random()
            if kind < 0.6:
                self._change(header)
            elif kind < 0.85:
                self._change(described)
            else:  # numbers in the arrays, NaN and infinity among them
                at = self.rng.randrange(0, len(body) - 4, 4)
                body[at : at + 4] = self.rng.choice(_NUMBERS)
        written = json.dumps(header)
        if self.rng.random() < 0.05:
            written = self.rng.choice(("[" * 100_000, '{"a":' * 50_000, written.replace("{", '{"format":1,', 1)))
        if isinstance(described.get("__metadata__"), dict):
            described["__metadata__"]["ercr"] = written
        head = json.dumps(described).encode()
        return len(head).to_bytes(8, "little") + head + bytes(body)

    def _change(self, data: Any) -> None:
        """Change, remove, double or nest one value somewhere."""
        while True:
            keys = list(data) if isinstance(data, dict) else list(range(len(data)))
            if not keys:
                return
            key = self.rng.choice(keys)
            if isinstance(data[key], dict | list) and self.rng.random() < 0.8:
                data = data[key]
                continue
            break
        kind = self.rng.randrange(6)
        if kind == 0:
            del data[key]
        elif kind == 1:
            data[key] = [[data[key]]]
        elif kind == 2 and isinstance(data, list):
            data.append(data[key])
        elif kind == 3 and isinstance(data[key], int | float):
            data[key] = self.rng.choice((-1, 2, 1000)) * data[key]
        else:
            data[key] = self.rng.choice(_JUNK)


def use(found: ercr.Explanation, place: Path) -> None:
    """Everything that is done with an explanation."""
    for word in (*found.words, *found.prompt_words):
        assert word.map.shape == found.geometry.grid
        float(word.evidence), float(word.probability)
    which = 0 if found.words else None
    if found.words:
        assert found.heatmap(0).shape == found.image.size
        found.overlay(0)
        found.heatmap()
        if found.alpha is not None and found.beta is not None:
            found.context(0)
    found.to_ansi(which)
    with contextlib.redirect_stdout(io.StringIO()):
        found.show(which)
    found.to_html(place / "page.html", which).encode()
    found.to_numpy()
    json.dumps(found.to_dict(), ensure_ascii=False).encode()
    ercr.compare([found, found], which).to_html()
    found.save(place / "again.ercr")
    assert ercr.load(place / "again.ercr").text == found.text
    repr(found), found.seen


def attack(count: int, seed: int, sound: bytes, place: Path) -> tuple[Counter[str], list[str]]:
    """So many files: how they end, and what is wrong."""
    maker, ends, wrong = Maker(sound, random.Random(seed)), Counter[str](), list[str]()
    for number in range(count):
        (place / "x.ercr").write_bytes(maker.make())
        signal.alarm(PATIENCE)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                use(ercr.load(place / "x.ercr"), place)
            end, trouble = "used", None
        except FileFormatError as error:
            end, trouble = "refused", sentence_trouble(str(error))
        except Exception as error:
            end, trouble = "failed", f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            signal.alarm(0)
        ends[end] += 1
        wrong += [f"file {number}: {trouble}"] if trouble else []
    return ends, wrong


def sound(explainer: Any) -> bytes:
    """A saved explanation of a small picture."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as place:
        explanation = explainer.explain(Image.new("RGB", (48, 36), "red"), "What is this?", answer="A dog on a sofa.")
        explanation.save(Path(place, "x.ercr"))
        return Path(place, "x.ercr").read_bytes()


def main() -> int:
    from tests import tiny

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        model = tiny.build("llava", Path(place, "model"))
        data = sound(ercr.Explainer.from_pretrained(str(model), dtype="float32"))
        ends, wrong = attack(options.count, options.seed, data, Path(place))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wrong += [f"{peak:.0f} MB were held"] if peak > MEMORY else []
    print(*wrong[:20], sep="\n")
    print(f"{options.count} explanations: {dict(sorted(ends.items()))}, at most {peak:.0f} MB; {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
