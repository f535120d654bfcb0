"""Load on `ercr serve`, run by hand: `python -m tests.web.load [--seconds 120] [--clients 40] [--malformed 500]`.

Clients ask for explanations one after the other; every request must be answered, and rightly. Then come malformed
requests: each must end in a 4xx or in an error event with a sentence. Memory of the server is read after a warm-up
and at the end.
"""

from __future__ import annotations

import argparse
import json
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


def malformed(url: str, count: int, path: str) -> tuple[Counter[str], list[str]]:
    """How requests that make no sense end, by kind; and those that did not end as they should."""
    rng, ends, wrong = random.Random(0), Counter[str](), []
    with httpx.Client(base_url=url, timeout=60) as http:
        for _ in range(count):
            request = _nonsense(rng, path)
            try:
                answer = http.request(**request)
                end = _end(http, answer)
            except httpx.HTTPError as error:
                end = f"broken: {error!r}"
            ends[end] += 1
            if not (end.startswith("4") or end == "error event"):
                wrong.append(f"{end}: {str(request)[:300]}")
    return ends, wrong


def _end(http: httpx.Client, answer: httpx.Response) -> str:
    """A status, or what the event that was queued ended in."""
    if answer.status_code != 200:
        clear = answer.headers["content-type"].startswith(("application/json", "text/plain")) and answer.text
        return str(answer.status_code) if clear else f"unclear {answer.status_code}"
    if "text/event-stream" in answer.headers["content-type"]:
        return "error event" if "error" in answer.text else "unclear stream"
    event = answer.json().get("event_id") if isinstance(answer.json(), dict) else None
    if event is None:
        return f"accepted: {answer.text[:80]}"
    text = http.get(f"/gradio_api/call/explain/{event}").text
    return "error event" if '"error": "' in text else f"unclear event {text[:80]}"


def _nonsense(rng: random.Random, path: str) -> dict[str, Any]:
    """One request with something wrong in it."""
    junk = rng.choice([None, True, -1, 10**400, "", "x" * 9000, [], {}, {"path": "/etc/passwd"}, [[[]]], "\0", "nope"])
    values = [{"path": path}, PROMPT, MODEL, "ercr", 8]
    post = {"method": "POST", "url": "/gradio_api/call/explain"}
    kind = rng.randrange(10)
    if kind == 0:  # a value of the wrong kind
        values[rng.randrange(4)] = rng.choice(["", [], {}, -1, "x" * 9000, {"path": "http://127.0.0.1:9/"}])
        return {**post, "content": json.dumps({"data": values})}
    if kind == 1:
        return {**post, "content": json.dumps({"data": rng.choice([values[:-1], [*values, 1], junk, {}])})}
    if kind == 2:
        return {**post, "content": rng.randbytes(rng.randrange(2000))}
    if kind == 3:
        return {**post, "content": json.dumps({"data": values})[: rng.randrange(1, 60)]}
    if kind == 4:
        body = {"fn_index": rng.choice([99, -1, "0", None]), "session_hash": "load", "data": [junk]}
        return {**post, "url": "/gradio_api/queue/join", "content": json.dumps(body)}
    if kind == 5:
        return {
            **post,
            "url": f"/gradio_api/{rng.choice(['upload', 'cancel', 'reset', 'run/predict', 'call/x'])}",
            "content": json.dumps(junk),
        }
    if kind == 6:
        form = {"content-type": rng.choice(["multipart/form-data; boundary=x", "multipart/form-data", "text/plain"])}
        return {**post, "url": "/gradio_api/upload", "content": rng.randbytes(500), "headers": form}
    if kind == 7:
        target = rng.choice(["file=/etc/passwd", "file=http://127.0.0.1:9/", "proxy=http://127.0.0.1:9/", "nothing"])
        return {"method": rng.choice(["GET", "POST", "PUT", "DELETE"]), "url": f"/gradio_api/{target}"}
    if kind == 8:
        return {**post, "content": "[" * rng.randrange(10_000, 200_000)}
    return {"method": "GET", "url": f"/gradio_api/queue/data?{rng.choice(['', 'session_hash=gone'])}"}


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
            ends, wrong = malformed(server.url, options.malformed, path)
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
