"""Kill an evaluation again and again at random moments; its rows must equal those of one that ran through.

python -m tests.evaluate.kill_test --scenes 200 --kills 20 [--engine ray --workers 2]
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq


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
    rng, killed = random.Random(arguments.seed), 0
    # each attempt should get through loading and some parts, but hardly ever to the end
    while killed < arguments.kills:
        process = subprocess.Popen([*command, *spread, "--out", str(folder / "killed")], stderr=subprocess.DEVNULL)
        try:
            process.wait(rng.uniform(0.02, 0.25) * whole)
            print("finished before it was killed", flush=True)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            parts = len(list((folder / "killed" / "parts").glob("part-*.parquet")))
            print(f"kill {killed}: {parts} parts", flush=True)
    subprocess.run([*command, *spread, "--out", str(folder / "killed")], check=True, capture_output=True)
    digests = [
        hashlib.sha256((folder / name / "rows.parquet").read_bytes()).hexdigest() for name in ("whole", "killed")
    ]
    table = pq.read_table(folder / "killed" / "rows.parquet", columns=["index", "method", "token"]).to_pylist()
    keys = [tuple(row.values()) for row in table]
    lost = set(range(arguments.scenes)) - {key[0] for key in keys}
    print(f"{killed} kills, {len(keys)} rows, {len(keys) - len(set(keys))} twice, {len(lost)} samples lost")
    print(
        f"rows.parquet {digests[0][:16]} and {digests[1][:16]}: {'equal' if digests[0] == digests[1] else 'DIFFERENT'}"
    )
    shutil.rmtree(folder)
    sys.exit(digests[0] != digests[1])


if __name__ == "__main__":
    main()
