"""Clients that go away from `ercr serve`: `python -m tests.attacks.leaving [--times 2]`.

A request is made, listened to, and left while its work is under way, for every method. The seconds are measured until
the server's processor time stands still again. Loopback only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import httpx

from ercr.datasets.scenes import scene
from tests.attacks.asking import API, MODEL, PROMPT, begin, explain, upload
from tests.attacks.visitors import METHODS
from tests.web.conftest import Server

_ALLOWED = 2.0  # seconds of work after the client has gone
_STEP = 0.25
_IDLE = 0.1  # share of a processor that a server without work takes


def busy(process: int) -> float:
    """Processor time of a process, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def leave(http: httpx.Client, process: int, file: str, method: str, sentence: str) -> tuple[float, bool]:
    """Seconds of processor time spent after a client has gone, and whether there was work to end."""
    event = begin(http, "explain_sentence", [{"path": file}, sentence, PROMPT, MODEL, method])
    with http.stream("GET", f"{API}/call/explain_sentence/{event}") as answer:
        assert answer.status_code == 200
        time.sleep(0.4)
    left = busy(process)
    while True:
        before = busy(process)
        time.sleep(_STEP)
        if busy(process) - before < _IDLE * _STEP:
            return before - left, before > left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place), "--model", MODEL)
        try:
            picture = Path(place) / "scene.png"
            scene(3).image.save(picture)
            sentence = " ".join(["A cat and a tree and a dog above a banana."] * 6)
            spent, whole = {}, {}
            with httpx.Client(base_url=server.url, timeout=300) as http:
                file = upload(http, picture)
                explain(http, file)  # the model is loaded
                for method in METHODS:
                    before = busy(server.process.pid)
                    event = begin(http, "explain_sentence", [{"path": file}, sentence, PROMPT, MODEL, method])
                    http.get(f"{API}/call/explain_sentence/{event}")
                    whole[method] = busy(server.process.pid) - before
                    found = [
                        leave(http, server.process.pid, file, method, sentence) for _ in range(min(options.times, 20))
                    ]
                    spent[method] = max(seconds for seconds, _ in found)
                alive = http.get("/").status_code == 200 and bool(explain(http, file)[1])
        finally:
            server.stop()
    print("method: seconds of processor time for a whole request, and after its client has gone")
    print(json.dumps({method: [round(whole[method], 2), round(spent[method], 2)] for method in METHODS}))
    late = [method for method in METHODS if spent[method] > _ALLOWED]
    print(f"{len(late)} of {len(METHODS)} methods worked on for more than {_ALLOWED:g} s: {', '.join(late) or 'none'}")
    return int(bool(late) or not alive)


if __name__ == "__main__":
    sys.exit(main())
