"""Silent connections against `ercr serve`: `python -m tests.attacks.silent [--silent 2000] [--clients 20]`.

Connections that say nothing, half of a request's head, a head without its body, or a byte now and then are opened and
opened again when the server ends them, while clients ask for the page and for explanations. Every client must be
served. Loopback only, for `--seconds` at most.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import selectors
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from ercr.datasets.scenes import scene
from tests.attacks.asking import API, explain, upload
from tests.web.conftest import Server


class Crowd:
    """Open connections that are of no use to anybody, kept open by a thread of its own."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count
        self._said = [
            f"{line}\r\nHost: 127.0.0.1:{port}\r\n".encode() for line in ("GET / HTTP/1.1", "GET /config HTTP/1.1")
        ]
        body = b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
        form = b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 9000000\r\n\r\n--x\r\n"
        head = f" HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode()
        self._said += [
            b"",
            b"G",
            f"POST {API}/call/explain".encode() + head + body,
            f"POST {API}/upload".encode() + head + form,
        ]
        self._watch = selectors.DefaultSelector()
        self._stop = threading.Event()
        self.opened = self.ended = self.open = 0
        self._thread = threading.Thread(target=self._keep_open, daemon=True)

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for key in list(self._watch.get_map().values()):
            key.fileobj.close()
        self._watch.close()

    def _keep_open(self) -> None:
        dripped = time.monotonic()
        while not self._stop.is_set():
            # at once to begin with; then those that were ended come back at a rate that is not itself an attack
            most = 50 if self.opened < self._count else 5
            for _ in range(min(most, self._count - self.open)):
                with contextlib.suppress(OSError):
                    self._open()
            for key, _ in self._watch.select(0.05):
                with contextlib.suppress(OSError):
                    if key.fileobj.recv(4096):
                        continue
                self._watch.unregister(key.fileobj)
                key.fileobj.close()
                self.open -= 1
                self.ended += 1
            if time.monotonic() - dripped > 3:
                dripped = time.monotonic()
                for number, key in enumerate(list(self._watch.get_map().values())):
                    with contextlib.suppress(OSError):
                        if number % 4 == 0:
                            key.fileobj.send(b"x")

    def _open(self) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=2)
        connection.setblocking(False)
        self._watch.register(connection, selectors.EVENT_READ)
        self.open += 1
        said = self._said[self.opened % len(self._said)]
        self.opened += 1
        if said:
            connection.send(said)


def ask(url: str, picture: Path, times: int) -> list[float]:
    """Seconds of each round of one client: the page, an upload and an explanation, each on a new connection."""
    found = []
    for _ in range(times):
        began = time.monotonic()
        with httpx.Client(base_url=url, timeout=120) as http:
            page = http.get("/")
            page.raise_for_status()
            _, words = explain(http, upload(http, picture), "cam", 4)
            assert words
        found.append(time.monotonic() - began)
    return found


def attack(url: str, place: Path, silent: int, clients: int, times: int) -> tuple[list[float], list[str], Crowd]:
    """Seconds per round of the clients that were served, what went wrong, and the crowd that was there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < silent + 500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, silent + 500), hard))
    picture = place / "scene.png"
    scene(3).image.save(picture)
    served, wrong = [], []
    with Crowd(int(url.rpartition(":")[2]), silent) as crowd, ThreadPoolExecutor(clients) as pool:
        until = time.monotonic() + 20
        while crowd.opened < silent and time.monotonic() < until:
            time.sleep(0.05)
        for job in [pool.submit(ask, url, picture, times) for _ in range(clients)]:
            try:
                served += job.result()
            except Exception as error:
                wrong.append(repr(error)[:300])
    return served, wrong, crowd


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--silent", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place), "--model", "scenes-qwen2vl")
        try:
            silent, clients, times = min(options.silent, 10_000), min(options.clients, 100), min(options.times, 50)
            served, wrong, crowd = attack(server.url, Path(place), silent, clients, times)
            afterwards = httpx.get(server.url, timeout=60).status_code
        finally:
            server.stop()
    print(f"{crowd.opened} silent connections opened, {crowd.ended} ended by the server meanwhile")
    print(f"{len(served)} of {clients * times} rounds of {clients} clients served, {len(wrong)} clients not")
    if served:
        print(f"seconds per round: median {sorted(served)[len(served) // 2]:.1f}, slowest {max(served):.1f}")
    print(f"afterwards the page answers {afterwards}")
    print(*wrong[:10], sep="\n")
    return int(bool(wrong) or crowd.opened < options.silent or afterwards != 200)


if __name__ == "__main__":
    sys.exit(main())
