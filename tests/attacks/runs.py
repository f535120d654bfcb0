"""Damaged run folders: `python -m tests.attacks.runs [--count 1000] [--seed 0]`.

Each is a copy of a finished or an unfinished run with one to three of its files flipped in a bit, cut, emptied, lost,
swapped, taken from another run, or replaced by a folder, a link, a pipe or junk. Its report must be the sound run's,
or be refused in one sentence, or say that the run is unfinished; evaluating again must end with the sound run's bytes
or with one sentence. Files of other people in the folder must still be there afterwards.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ercr.errors import ErcrError
from ercr.evaluate import Run, evaluate
from ercr.report.runs import read_run
from tests.attacks.pictures import sentence_trouble

PATIENCE = 60  # seconds for one folder
SAMPLES = 4
OPTIONS: dict[str, Any] = {"methods": "cam,ercr", "part_size": 1, "answers": "references", "protocol": "clean"}
_JUNK = (b"", b"{}", b"[]", b"null", b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe", b"PAR1PAR1", bytes(4096))
_FOREIGN = (".env.local", ".gitlab-ci.yml", ".rows.parquet.bak", "notes.txt", "parts/.part-000000.parquet.swp")


class Damage:
    """Copies a sound run, whole or unfinished, and spoils it."""

    def __init__(self, place: Path, whole: Path, other: Path, rng: random.Random) -> None:
        self.place, self.whole, self.other, self.rng = place, whole, other, rng
        self.foreign: dict[Path, bytes] = {}

    def make(self) -> Path:
        folder = self.place / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.whole, folder)
        self.foreign = {}
        if self.rng.random() < 0.4:  # killed before its end
            for name in ("rows.parquet", "rows.json", "parts/part-000003.parquet"):
                (folder / name).unlink()
        names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        for _ in range(self.rng.randrange(1, 4)):
            self._spoil(folder, self.rng.choice([name for name in names if name != ".lock"] * 9 + [".lock"]), names)
        return folder

    def _spoil(self, folder: Path, name: str, names: list[str]) -> None:
        path, kind = folder / name, self.rng.randrange(14)
        if not path.is_file():
            return
        data = bytearray(path.read_bytes())
        at = self.rng.randrange(len(data)) if data else 0
        if kind < 4 and data:
            data[at] ^= 1 << self.rng.randrange(8)
            path.write_bytes(data)
        elif kind == 4:
            path.write_bytes(data[:at])
        elif kind == 5:
            path.write_bytes(self.rng.choice(_JUNK))
        elif kind == 6:
            path.unlink()
        elif kind == 7:  # the rows of another part, with or without their record
            twin = folder / self.rng.choice([n for n in names if n.endswith(path.suffix)])
            if twin.is_file():
                records = twin.with_suffix(".json"), path.with_suffix(".json")
                path.write_bytes(twin.read_bytes())
                if self.rng.random() < 0.5 and all(record.is_file() for record in records):
                    records[1].write_bytes(records[0].read_bytes())
        elif kind == 8:  # those of another run, with or without theirs
            for suffix in (path.suffix, *([".json"] if self.rng.random() < 0.5 else [])):
                theirs, ours = (self.other / name).with_suffix(suffix), path.with_suffix(suffix)
                if theirs.is_file() and (ours.is_file() or not ours.exists()):
                    ours.write_bytes(theirs.read_bytes())
        elif kind == 9:
            path.write_bytes(bytes(data) + self.rng.randbytes(self.rng.randrange(1, 99)))
        elif kind == 10:
            path.unlink()
            self.rng.choice((os.mkfifo, os.mkdir))(path)
        elif kind == 11:
            path.unlink()
            path.symlink_to(self.rng.choice(("/dev/zero", "/dev/null", "nowhere", path.name)))
        elif kind == 12:
            mine = folder / self.rng.choice(_FOREIGN)
            mine.write_bytes(b"mine")
            self.foreign[mine] = b"mine"
        else:  # a later version's, or one that is half ours
            path.write_bytes(bytes(data).replace(b'"format": 2', b'"format": %d' % self.rng.randrange(9)))


def told(run: Path) -> dict[str, Any] | None:
    """The sums of a report; None where it says that the run is not finished."""
    found = read_run(run)
    if not found.finished:
        return None
    return {m: (s.words.images, s.scored, s.failed) for m, s in found.scores.items()}


def attack(count: int, seed: int, explainer: Any, place: Path) -> tuple[Counter[str], list[str]]:
    """So many folders: how report and evaluation end, and what is wrong."""

    def again(out: Path, samples: int = SAMPLES) -> Run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return evaluate(explainer, f"scenes:{samples}", out=out, **OPTIONS)

    again(place / "whole")
    again(place / "other", SAMPLES + 1)
    sound, figures = (place / "whole/rows.parquet").read_bytes(), told(place / "whole")
    other, others = (place / "other/settings.json").read_bytes(), told(place / "other")
    damage = Damage(place, place / "whole", place / "other", random.Random(seed))
    ends, wrong = Counter[str](), list[str]()
    for number in range(count):
        folder = damage.make()

        def report(folder: Path = folder) -> str | None:
            found = told(folder)
            if found is None:
                return "unfinished"
            if found == others and (folder / "settings.json").read_bytes() == other:
                return "another whole run's"  # settings, rows and record were all taken from it
            return "sound" if found == figures else None

        def mend(folder: Path = folder) -> str | None:
            return "mended" if (again(folder).path / "rows.parquet").read_bytes() == sound else None

        for what, call in (("report", report), ("evaluate", mend)):
            end, trouble = _ends(call)
            ends[f"{what} {end}"] += 1
            wrong += [f"folder {number}, {what}: {trouble}"] if trouble else []
        for path, content in damage.foreign.items():
            if not path.is_file() or path.read_bytes() != content:
                wrong.append(f"folder {number}: {path.name} of somebody else is gone")
    return ends, wrong


def _ends(call: Callable[[], str | None]) -> tuple[str, str | None]:
    """How a call ends, and what is wrong with that."""
    signal.alarm(PATIENCE)
    try:
        end = call()
    except ErcrError as error:
        return "refused", sentence_trouble(str(error))
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return end or "wrong", None if end else "other rows than the sound run's"


def main() -> int:
    import ercr
    from tests import tiny

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        explainer = ercr.Explainer.from_pretrained(str(tiny.build("qwen2_vl", Path(place, "model"))), dtype="float32")
        ends, wrong = attack(options.count, options.seed, explainer, Path(place))
    print(*wrong[:20], sep="\n")
    print(f"{options.count} damaged run folders: {dict(sorted(ends.items()))}; {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
