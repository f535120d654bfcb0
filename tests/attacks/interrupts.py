"""Ctrl+C at random moments of a run: `python -m tests.attacks.interrupts [--count 500]`.

Explaining by every method, in batches and in streams, is broken off by a real signal at moments spread over a whole
run. The model, the process and this thread's settings must be as before each time, and the results, too.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import ercr
from tests.attacks.threads import state


def interrupted(function: Callable[[], Any], count: int, seed: int = 0, after: Callable[[], None] | None = None) -> int:
    """Run a function so many times with an interrupt somewhere in it; how many of them came before its end."""
    rng, hits = random.Random(seed), 0
    whole = min(_seconds(function) for _ in range(3))  # a slow first run would put interrupts behind the end
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(count):
            try:
                signal.setitimer(signal.ITIMER_REAL, max(1e-4, rng.random() * whole))
                function()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hits += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if after is not None:
                after()
    finally:
        signal.signal(signal.SIGALRM, before)
    return hits


def _seconds(function: Callable[[], Any]) -> float:
    began = time.monotonic()
    function()
    return time.monotonic() - began


def tasks(explainer: ercr.Explainer, image: Any) -> dict[str, Callable[[], Any]]:
    """What is broken off, by name; each gives maps."""

    def explain(method: str) -> Callable[[], Any]:
        return lambda: explainer.explain(image, method=method, max_new_tokens=4).maps

    def stream(**generation: Any) -> Callable[[], Any]:
        return lambda: explainer.stream(image, max_new_tokens=4, generation=generation).explanation().maps

    def batch() -> Any:
        return explainer.explain_batch([image] * 3, max_new_tokens=4, batch_size=2)[2].maps

    found = {name: explain(name) for name in ercr.methods.methods()}
    return {**found, "stream": stream(), "stream by generate": stream(min_new_tokens=2), "batch": batch}


def attack(explainer: ercr.Explainer, image: Any, count: int, seed: int) -> tuple[int, list[str]]:
    """So many interrupts over all tasks: how many broke a run off, and what was not as before."""
    wrong: list[str] = []
    todo, hits = tasks(explainer, image), 0
    for number, (name, function) in enumerate(todo.items()):
        expected, before = function(), state(explainer.adapter.model)

        def look(name: str = name, before: Any = before) -> None:
            if state(explainer.adapter.model) != before:
                wrong.append(f"{name}: something was left behind")

        hits += interrupted(function, -(-count // len(todo)), seed + number, look)
        if not np.array_equal(function(), expected):
            wrong.append(f"{name}: another result afterwards")
    return hits, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from ercr.datasets.scenes.dataset import scene

    torch.set_num_threads(1)
    hits, wrong = attack(ercr.Explainer.from_pretrained("scenes-llava"), scene(5).image, options.count, options.seed)
    print(*wrong[:20], sep="\n")
    print(f"{options.count} interrupts, {hits} of them in the middle of a run: {len(wrong)} wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
