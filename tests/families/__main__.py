"""Checks tiny checkpoints of all families: `python -m tests.families [NAMES] [--write] [--json]`.

Prints a line for each; `--write` puts the table where `ercr models` and the page on families read it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from tests.families.torchvision_here import make_importable

make_importable()

import torch
import transformers

from ercr.models.checked import FILE as CHECKED
from tests.families.checks import Checked, as_data, check
from tests.families.registry import families


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.families")
    options.add_argument("names", nargs="*")
    options.add_argument("--write", action="store_true")
    options.add_argument("--json", action="store_true", help="print all rows as the last line")
    given = options.parse_args()
    torch.set_num_threads(1)
    known = families()
    rows, failed = [], []
    for name in given.names or known:
        try:
            found = check(known[name])
        except Exception:
            failed.append(name)
            print(f"{name}: FAILED", flush=True)
            traceback.print_exc()
            continue
        rows.append(as_data(found))
        print(line(found), flush=True)
    if given.json:
        print(json.dumps(rows))
        return 1 if failed else 0
    if given.write:
        rows.sort(key=lambda row: row["title"].lower())
        lines = ",\n".join(json.dumps(row) for row in rows)
        CHECKED.write_text(f'{{"transformers": "{transformers.__version__}", "families": [\n{lines}\n]}}\n', "utf-8")
    print(f"{len(rows)} families checked, {len(failed)} failed: {' '.join(failed)}")
    return 1 if failed else 0


def line(found: Checked) -> str:
    refused = {name: why for name, why in found.methods.items() if why != "ok"}
    head = f"{found.name:24} {found.adapter:8}"
    if found.adapter == "none":
        answers = f"inputs {found.inputs} tokens {found.tokens} p {found.probabilities}"
        return f"{head} {answers} occlusion {found.methods['occlusion']}\n    {found.reason}"
    numbers = (
        f"inputs {found.inputs!s:5} tokens {found.tokens!s:5} p {found.probabilities:.0e} painted {found.painted:.2f} "
        f"half {found.half:.3f} "
        f"replay {found.replayed:.0e} causal {found.causal!s:5} batches {found.batches!s:5}"
    )
    beside = "" if found.beside_own is None else f" beside {found.beside_own:.3f}"
    return f"{head} {numbers}{beside} {len(found.methods) - len(refused)} methods" + "".join(
        f"\n    {name}: {why}" for name, why in refused.items()
    )


if __name__ == "__main__":
    sys.exit(main())
