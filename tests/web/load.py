"""Load on `ercr serve`, run by hand: `python -m tests.web.load [--seconds 120] [--clients 40] [--malformed 500]`.

Clients ask for explanations one after the other; every request must be answered, and rightly. Then come malformed
requests: each must end in a 4xx or in an error event with a sentence. Memory of the server is read after a warm-up
and at the end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

from ercr.datasets.scenes import scene
from tests.attacks.requests import attack
from tests.web.conftest import Server

PROMPT = "Describe this image."
MODEL = "scenes-qwen2vl"


def resident(process: int) -> float:
    """Memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


class Crowd:
    """Clients of the library that Gradio gives its users, each with a picture of its own."""

    def __init__(self, server: Server, place: Path, clients: int) -> None:
        from gradio_client import Client

        self.server = server
        self.files = []
        for seed in range(clients):
            self.files.append(place / f"{seed}.png")
            scene(seed).image.save(self.files[-1])
        self.clients = [Client(server.url, verbose=False) for _ in range(clients)]
        self.answers: dict[int, set[str]] = {}
        self.times: list[float] = []
        self.failures: list[str] = []
        self.sent = 0
        self._lock = threading.Lock()

    def run(self, seconds: float) -> None:
        """All clients at once for some time; what was begun is waited for."""
        stop = time.monotonic() + seconds
        threads = [threading.Thread(target=self._ask, args=(index, stop)) for index in range(len(self.clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _ask(self, index: int, stop: float) -> None:
        from gradio_client import handle_file

        while time.monotonic() < stop:
            began = time.monotonic()
            with self._lock:
                self.sent += 1
            try:
                job = self.clients[index].submit(handle_file(self.files[index]), PROMPT, api_name="/explain")
                text, words, report = job.result(timeout=300)
                right = bool(text and words) and Path(report).stat().st_size > 10_000
                with self._lock:
                    self.times.append(time.monotonic() - began)
                    self.answers.setdefault(index, set()).add(text)
                    if not right:
                        self.failures.append(f"incomplete answer: {text!r}")
            except Exception as error:
                with self._lock:
                    self.failures.append(repr(error)[:300])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--malformed", type=int, default=500)
    parser.add_argument("--warm-up", type=float, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place), "--model", "scenes-qwen2vl")
        try:
            crowd = Crowd(server, Path(place), options.clients)
            crowd.run(options.warm_up)
            warm, warmed = resident(server.process.pid), crowd.sent
            crowd.run(options.seconds)
            print(
                f"{crowd.sent - warmed} requests in {options.seconds:g} s by {options.clients} clients after a warm-up"
                f" of {warmed}: {len(crowd.failures)} failed, {crowd.sent - len(crowd.times)} without an answer"
            )
            times = sorted(crowd.times[warmed:])
            if times:
                print(f"seconds per answer: median {times[len(times) // 2]:.1f}, slowest {times[-1]:.1f}")
            changed = sum(len(texts) != 1 for texts in crowd.answers.values())
            print(f"clients whose answer to one picture changed: {changed}")
            print(f"memory: {warm:.0f} MB after the warm-up, {resident(server.process.pid):.0f} MB at the end")
            files = {"files": ("scene.png", crowd.files[0].read_bytes())}
            path = httpx.post(f"{server.url}/gradio_api/upload", files=files).json()[0]
            ends, wrong = attack(server.url, options.malformed, 0, path)
            print(f"malformed: {dict(ends)}")
            alive = server.process.poll() is None and httpx.get(server.url).status_code == 200
            print(f"afterwards the server is {'alive' if alive else 'DEAD'}, {resident(server.process.pid):.0f} MB")
            print(*crowd.failures[:5], *wrong[:10], sep="\n")
            log = server.log.read_text()
            print(f"tracebacks in the log: {log.count('Traceback')}")
            return int(bool(crowd.failures or wrong or changed or not alive))
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
