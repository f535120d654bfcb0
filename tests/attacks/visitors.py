"""Many visitors at once against `ercr serve`: `python -m tests.attacks.visitors [--clients 40] [--seconds 120]`.

Every request (a picture and a method) is first asked alone. Then many clients ask for the same requests in a mixed
order, four of which run at a time. Every answer must be there, and every word, probability and map must be that of the
same request alone. Loopback only.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from ercr.datasets.scenes import scene
from tests.attacks.asking import MODEL, explain, upload
from tests.web.conftest import Server

METHODS = ("ercr", "tam", "cam", "layer_cam", "llava_cam", "grad_rollout", "attention", "attn_lrp", "cp_lrp")
METHODS += ("grad_cam_pp", "attention_rollout", "lvlm_interpret", "vl_interpret", "architecture_surgery")
SCENES = (5895, 3, 11)
_LENGTH = 6  # tokens of an answer
_PATIENCE = 300.0
_ROUNDING = 2e-4  # maps come in four decimals, of which the last may be rounded either way

Answer = tuple[str, list[dict[str, Any]]]
Request = tuple[str, str]  # uploaded file, method


def difference(answer: Answer, alone: Answer) -> str | None:
    """What distinguishes two answers, if anything does."""
    if answer[0] != alone[0] or [word["text"] for word in answer[1]] != [word["text"] for word in alone[1]]:
        return f"says {answer[0]!r}, alone {alone[0]!r}"
    for word, other in zip(answer[1], alone[1], strict=True):
        if abs(word["probability"] - other["probability"]) > _ROUNDING:
            return f"{word['text']!r} has probability {word['probability']}, alone {other['probability']}"
        pairs = zip(itertools.chain(*word["map"]), itertools.chain(*other["map"]), strict=True)
        worst = max(abs(value - wanted) for value, wanted in pairs)
        if not worst <= _ROUNDING:
            return f"the map of {word['text']!r} differs by {worst:.4f}"
    return None


class Visitors:
    """Clients that ask one request after the other until time is up."""

    def __init__(self, url: str, requests: dict[Request, Answer], until: float) -> None:
        self._url = url
        self._requests = requests
        self._until = until
        self._lock = threading.Lock()
        self.served = Counter[str]()
        self.wrong: list[str] = []
        self.failed: list[str] = []

    def run(self, clients: int) -> None:
        threads = [threading.Thread(target=self._visit, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _visit(self, number: int) -> None:
        rng, known = random.Random(number), list(self._requests)
        with httpx.Client(base_url=self._url, timeout=_PATIENCE) as http:
            while time.monotonic() < self._until:
                file, method = request = rng.choice(known)
                try:
                    found = difference(explain(http, file, method, _LENGTH), self._requests[request])
                    failed = None
                except Exception as error:
                    found, failed = None, f"{method}: {error!r}"[:300]
                with self._lock:
                    self.served[method] += failed is None
                    self.wrong += [f"{method}: {found}"] if found else []
                    self.failed += [failed] if failed else []


def alone(url: str, place: Path, methods: tuple[str, ...], scenes: tuple[int, ...]) -> dict[Request, Answer]:
    """Each request's answer while nobody else asks."""
    found = {}
    with httpx.Client(base_url=url, timeout=_PATIENCE) as http:
        for seed in scenes:
            picture = place / f"{seed}.png"
            scene(seed).image.save(picture)
            file = upload(http, picture)
            found |= {(file, method): explain(http, file, method, _LENGTH) for method in methods}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place), "--model", MODEL, "--concurrent", "4")
        try:
            requests = alone(server.url, Path(place), METHODS, SCENES)
            visitors = Visitors(server.url, requests, time.monotonic() + min(options.seconds, 600))
            visitors.run(min(options.clients, 60))
        finally:
            server.stop()
        tracebacks = server.log.read_text().count("Traceback")
    print(
        f"{len(requests)} requests alone; {sum(visitors.served.values())} answers to {options.clients} clients at once:"
    )
    print(f"{len(visitors.wrong)} wrong, {len(visitors.failed)} failed, {tracebacks} tracebacks in the log")
    print(f"by method: {dict(sorted(visitors.served.items()))}")
    print(*visitors.wrong[:10], *visitors.failed[:10], sep="\n")
    return int(bool(visitors.wrong or visitors.failed or tracebacks))


if __name__ == "__main__":
    sys.exit(main())
