"""Pages of other origins against `ercr serve`: `python -m tests.attacks.origins [--count 300] [--seed 0]`.

A browser tells the name a page called (Host) and the page that calls (Origin). Every request whose names are not the
server's own must be refused before it does anything, without leave to read the answer; with its own names it is served.
Loopback only.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.attacks.asking import API, PROMPT
from tests.web.conftest import Server

_BODY = {"data": [None, PROMPT, None, "ercr", 4]}


def requests() -> dict[str, dict[str, Any]]:
    """What a page could ask for, each of which the server answers with a 200 under its own name."""
    file = {"files": ("x.png", b"x")}
    join = {"session_hash": "s", "fn_index": 0}
    return {
        "page": {"method": "GET", "url": "/"},
        "settings": {"method": "GET", "url": "/config"},
        "description": {"method": "GET", "url": f"{API}/info"},
        "call": {"method": "POST", "url": f"{API}/call/explain", "json": _BODY},
        "upload": {"method": "POST", "url": f"{API}/upload", "files": file},
        "cancel": {"method": "POST", "url": f"{API}/cancel", "json": {**join, "event_id": "e"}},
        "reset": {"method": "POST", "url": f"{API}/reset", "json": {"event_id": "e"}},
    }


def foreign(rng: random.Random, port: int) -> str:
    """A name that is not the server's."""
    near = [f"localhost:{port + 1}", f"127.0.0.1.nip.io:{port}", f"localhost.evil.example:{port}", "localhost", "[::1]"]
    near += [f"evil.example:{port}", "evil.example", f"192.168.0.7:{port}", f"127.0.0.2:{port}", f"[::2]:{port}"]
    near += [f"127.0.0.1:{port}@evil.example", f"xn--lcalhost-54a:{port}", f"localhost.:{port}", f"0.0.0.0:{port}"]
    near += [
        f"{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}.9:{port}",
        f"a{rng.randrange(999)}.example",
    ]
    return rng.choice(near)


def attack(url: str, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """How requests with foreign names end, and all that went wrong, own names refused among it."""
    rng, ends, wrong, known = random.Random(seed), Counter[str](), [], requests()
    port = int(url.rpartition(":")[2])
    with httpx.Client(base_url=url, timeout=60) as http:
        for own in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", f"LocalHost:{port}"):
            for name, request in known.items():
                answer = http.request(**request, headers={"host": own, "origin": f"http://{own}"})
                ends["own, served"] += answer.status_code == 200
                if answer.status_code != 200:
                    wrong.append(f"own name {own} at {name}: {answer.status_code} {answer.text[:100]}")
        for _ in range(count):
            name = rng.choice(list(known))
            label, request = _foreign_request(rng, dict(known[name]), port)
            answer = http.request(**request)
            ends[f"{label}, {answer.status_code}"] += 1
            allowed = [key for key in answer.headers if key.startswith("access-control-allow")]
            if not 400 <= answer.status_code < 500 or allowed:
                wrong.append(f"{label} at {name}: {answer.status_code} {request.get('headers')} {allowed}")
    return ends, wrong


def _foreign_request(rng: random.Random, request: dict[str, Any], port: int) -> tuple[str, dict[str, Any]]:
    name, own = foreign(rng, port), f"127.0.0.1:{port}"
    origin = rng.choice([f"http://{name}", f"https://{name}", "null", f"https://{own}/", "file://", own])
    kind = rng.choice(["foreign origin", "foreign host", "rebound name", "preflight", "plain text", "websocket"])
    if kind == "foreign host":
        return kind, {**request, "headers": {"host": name}}
    if kind == "rebound name":  # the visitor's browser was led here under another name
        return kind, {**request, "headers": {"host": name, "origin": f"http://{name}"}}
    if kind == "preflight":
        asks = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "x"}
        return kind, {"method": "OPTIONS", "url": request["url"], "headers": asks}
    if kind == "plain text":  # what a form of another page can send, here even without an origin
        body = {"method": "POST", "url": f"{API}/call/explain", "content": b'{"data": [null, "x", null, "ercr", 4]}'}
        return kind, {**body, "headers": {"content-type": rng.choice(["text/plain", "multipart/form-data"])}}
    if kind == "websocket":
        upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "origin": origin}
        key = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
        return kind, {"method": "GET", "url": rng.choice(["/", f"{API}/queue/join"]), "headers": upgrade | key}
    return kind, {**request, "headers": {"origin": origin}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place), "--model", "scenes-qwen2vl")
        try:
            ends, wrong = attack(server.url, min(options.count, 20_000), options.seed)
        finally:
            server.stop()
    print(f"{dict(sorted(ends.items()))}; {len(wrong)} wrong")
    print(*wrong[:20], sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
