"""Kill `ercr explain FOLDER` again and again at random moments; its rows must equal those of a run that went through.

python -m tests.album.kill_test --pictures FOLDER --count 2000 --kills 10
python -m tests.album.kill_test --pictures FOLDER --count 200 --kills 1 --engine ray --workers 2

With Ray it is a worker that is killed, and the run goes on. Pictures are crops of those in the folder, all different.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from PIL import Image

from ercr.commands.cli import main as command

_PATIENCE = 900  # seconds
_ENDS_WITH_PARENT = 1  # of prctl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--model", default="scenes-qwen2vl")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--workers", default="1")
    parser.add_argument("--part-size", default="64")
    parser.add_argument("--options", default="--max-new-tokens 16")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="album-"))
    crops(given.pictures, folder / "pictures", given.count)
    words = ["explain", str(folder / "pictures"), "--model", given.model, "--part-size", given.part_size]
    words += given.options.split()
    started = time.perf_counter()
    process = begin([*words, "--out", str(folder / "whole")])
    level = watch(process)
    whole = time.perf_counter() - started
    assert process.exitcode == 0, "the run that goes through failed"
    print(json.dumps({"pictures": given.count, "seconds": round(whole, 1), "GiB": level}), flush=True)
    killed = [*words, "--out", str(folder / "killed"), "--engine", given.engine, "--workers", given.workers]
    kills = kill_worker(killed, folder) if given.engine == "ray" else kill(killed, folder, given.kills)
    rows = [hashlib.sha256((folder / name / "rows.parquet").read_bytes()).hexdigest() for name in ("whole", "killed")]
    equal = rows[0] == rows[1]
    print(json.dumps({"kills": kills, "same rows": equal, "failed": failures(folder / "whole")}), flush=True)
    sys.exit(0 if equal else 1)


def crops(source: Path, target: Path, count: int) -> None:
    """So many pictures of different crops."""
    files, rng = sorted(source.glob("*.jpg")), random.Random(0)
    target.mkdir()

    def make(number: int, share: tuple[float, ...]) -> None:
        image = Image.open(files[number % len(files)]).convert("RGB")
        width, height = (round(side * (0.6 + 0.4 * part)) for side, part in zip(image.size, share, strict=False))
        left, top = round((image.width - width) * share[2]), round((image.height - height) * share[3])
        image.crop((left, top, left + width, top + height)).save(target / f"{number:06d}.jpg", quality=92)

    shares = [tuple(rng.random() for _ in range(4)) for _ in range(count)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(make, range(count), shares))


def begin(words: list[str]) -> Any:
    """The command in a process of its own; forked, so that it need not import everything again."""
    process = multiprocessing.get_context("fork").Process(target=_run, args=(words,))
    process.start()
    return process


def _run(words: list[str]) -> None:
    ctypes.CDLL(None).prctl(_ENDS_WITH_PARENT, signal.SIGKILL)  # if this script is stopped (Linux)
    sys.argv = ["ercr", *words]
    command()


def watch(process: Any) -> list[float]:
    """GiB that the process holds in memory, about ten times until it ends."""
    seen = []
    while process.is_alive():
        try:
            line = next(x for x in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmRSS" in x)
            seen.append(round(int(line.split()[1]) / 2**20, 2))
        except (OSError, StopIteration):
            break
        time.sleep(0.5)
    process.join()
    return seen[:: max(1, len(seen) // 10)]


def kill(words: list[str], folder: Path, kills: int) -> int:
    """Kill the command so many times, each in another part, and then let it end."""
    rng, done = random.Random(1), 0
    while done < kills:
        process = begin(words)
        before, ends = parts(folder), time.monotonic() + _PATIENCE
        wanted = before + rng.choice((0, 1, 1, 2))  # none: while it loads, or in its first part
        while process.is_alive() and parts(folder) < wanted and time.monotonic() < ends:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.5)
        if not process.is_alive():
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        done += 1
        print(f"killed with {parts(folder)} parts", flush=True)
    process = begin(words)
    process.join()
    return done


def kill_worker(words: list[str], folder: Path) -> int:
    """Kill one of Ray's workers as soon as a part is there."""
    from tests.evaluate.test_cluster import workers_of

    process = begin(words)
    while process.is_alive() and parts(folder) < 1:
        time.sleep(0.05)
    found = workers_of(process.pid)[:1]
    for worker in found:
        os.kill(worker, signal.SIGKILL)
    process.join()
    return len(found)


def parts(folder: Path) -> int:
    return len(list((folder / "killed" / "parts").glob("part-*.parquet")))


def failures(run: Path) -> int:
    from ercr.album import Album

    return int(Album(run).summary()["failed"])


if __name__ == "__main__":
    main()
