"""Kill an evaluation again and again at random moments; its rows must equal those of one that ran through.

One that ends before it was killed often enough is compared, too, and begun anew in an empty folder.

python -m tests.evaluate.kill_test --scenes 200 --kills 20 [--engine ray --workers 2]
"""

from __future__ import annotations

import argparse
import hashlib
import math
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq


def parts_in(run: Path) -> int:
    return len(list((run / "parts").glob("part-*.parquet")))


def rows_of(run: Path) -> str:
    return hashlib.sha256((run / "rows.parquet").read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--model", default="scenes-qwen2vl")
    parser.add_argument("--methods", default="cam,ercr")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--workers", default="1")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kill-test-"))
    command = [sys.executable, "-m", "ercr", "evaluate", "--dataset", f"scenes:{arguments.scenes}", "--part-size", "8"]
    command += ["--model", arguments.model, "--methods", arguments.methods]
    spread = ["--engine", arguments.engine, "--workers", arguments.workers]
    started = time.perf_counter()
    subprocess.run([*command, "--out", str(folder / "whole")], check=True, capture_output=True)
    whole = time.perf_counter() - started
    print(f"ran through in {whole:.0f} s", flush=True)
    rng, killed, each = random.Random(arguments.seed), 0, whole / math.ceil(arguments.scenes / 8)
    ended: list[str] = []  # the rows of killed runs
    while killed < arguments.kills:
        before = parts_in(folder / "killed")
        process = subprocess.Popen(
            [*command, *spread, "--out", str(folder / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wanted = before + rng.choice((0, 1, 1, 2))  # none: while it loads, or in its first part
        while process.poll() is None and parts_in(folder / "killed") < wanted:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, each) + (rng.uniform(0, 10) if wanted == before else 0))
        if process.poll() is not None:
            print("finished before it was killed: begun anew", flush=True)
            ended.append(rows_of(folder / "killed"))
            shutil.rmtree(folder / "killed")
            continue
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed += 1
        print(f"kill {killed}: {parts_in(folder / 'killed')} parts", flush=True)
    subprocess.run([*command, *spread, "--out", str(folder / "killed")], check=True, capture_output=True)
    ended.append(rows_of(folder / "killed"))
    expected = rows_of(folder / "whole")
    table = pq.read_table(folder / "killed" / "rows.parquet", columns=["index", "method", "token"]).to_pylist()
    keys = [tuple(row.values()) for row in table]
    lost = set(range(arguments.scenes)) - {key[0] for key in keys}
    print(f"{killed} kills, {len(keys)} rows, {len(keys) - len(set(keys))} twice, {len(lost)} samples lost")
    differ = [rows for rows in ended if rows != expected]
    print(f"rows.parquet {expected[:16]}; {len(ended)} killed runs ended, {len(differ)} of them with other rows")
    shutil.rmtree(folder)
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
