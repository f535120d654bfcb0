"""Malformed requests against `ercr serve`: `python -m tests.attacks.requests [--count 500] [--seed 0]`.

Requests with something wrong in them, as HTTP clients send them and as bytes that no client sends. Each must end in a
4xx with a sentence or in an error event with a sentence; never in a 500, a hang or a traceback in the log. Loopback
only.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from ercr.datasets.scenes import scene
from tests.attacks.asking import API, MODEL, PROMPT, upload
from tests.web.conftest import Server

_JSON = {"content-type": "application/json"}
_PATIENCE = 60.0
_SURROGATES = ("\ud800", "a\udfff.png", "/tmp/\ud83d")


def attack(url: str, count: int, seed: int, path: str) -> tuple[Counter[str], list[str]]:
    """How requests that make no sense end, by kind; and those that did not end as they should."""
    rng, ends, wrong = random.Random(seed), Counter[str](), []
    with httpx.Client(base_url=url, timeout=_PATIENCE) as http:
        for _ in range(count):
            request = rng.choice(_KINDS)(rng, path)
            try:
                end = _raw(url, request) if isinstance(request, bytes) else _end(http, http.request(**request))
            except (httpx.HTTPError, OSError) as error:
                end = f"broken: {error!r}"
            ends[end] += 1
            if not (end.startswith("4") or end in ("error event", "closed")):
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
        return f"200 {answer.text[:80]}"
    text = http.get(f"{API}/call/explain/{event}").text
    unclear = "The server failed" in text or "event: error" not in text
    return f"unclear event {text[:200]}" if unclear else "error event"


def _raw(url: str, request: bytes) -> str:
    """The status that bytes are answered with; they end the connection."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE) as connection:
        connection.sendall(request.replace(b"HOST", f"{host}:{port}".encode()))
        connection.shutdown(socket.SHUT_WR)
        said = b""
        try:
            while part := connection.recv(65536):
                said += part
        except ConnectionResetError:
            pass
    return said[9:12].decode() if said.startswith(b"HTTP/1.1 ") else "closed"


def _values(rng: random.Random, path: str) -> dict[str, Any]:
    """A call with a value of the wrong kind."""
    values: list[Any] = [{"path": path}, PROMPT, MODEL, "ercr", 8]
    values[rng.randrange(4)] = rng.choice(["", [], {}, -1, "x" * 9000, {"path": "http://127.0.0.1:9/"}])
    return _post({"data": values})


def _shape(rng: random.Random, path: str) -> dict[str, Any]:
    """A call with too few values, too many, or something else in place of them."""
    values = [{"path": path}, PROMPT, MODEL, "ercr", 8]
    return _post({"data": rng.choice([values[:-1], [*values, 1], _junk(rng), {}])})


def _names(rng: random.Random, path: str) -> dict[str, Any]:
    """A path that is none, half a surrogate pair among them."""
    name = rng.choice([*_SURROGATES, f"{path}\0", path + "/x", "a" * 5000, "..", "", "\udcff" * 300, 7, None])
    if rng.random() < 0.3:
        target = "".join(f"%{byte:02x}" for byte in str(name).encode("utf-8", "surrogatepass"))
        return {"method": "GET", "url": f"{API}/file={target[:3000]}"}
    return _post({"data": [{"path": name}, PROMPT, MODEL, "ercr", 8]})


def _bytes(rng: random.Random, path: str) -> dict[str, Any]:
    """A body that is not JSON, is cut, or is nested without end."""
    whole = json.dumps({"data": [{"path": path}, PROMPT, MODEL, "ercr", 8]}).encode()
    cut = whole[: rng.randrange(1, 60)]
    body = rng.choice([rng.randbytes(rng.randrange(2000)), cut, b"[" * rng.randrange(9000, 200_000), b"\xff" + whole])
    return {"method": "POST", "url": f"{API}/call/explain", "content": body, "headers": _JSON}


def _events(rng: random.Random, _: str) -> dict[str, Any]:
    """Numbers of functions, sessions and events that are none."""
    body = {"fn_index": rng.choice([99, -1, "0", None, 10**30]), "session_hash": "load", "data": [_junk(rng)]}
    route = rng.choice(["queue/join", "run/predict", "cancel", "reset", "call/x", "call/v2/explain", "call/explain/"])
    return _post(rng.choice([body, _junk(rng)]), route)


def _forms(rng: random.Random, _: str) -> dict[str, Any]:
    """Uploads: broken forms, fields in place of files, files without a name, too many parts."""
    part = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\nabc\r\n'
    field, file = part % (b"files", b""), part % (b"files", b'; filename="a.png"')
    foreign = part % (b"other", b'; filename="b"')
    bodies = [field, part % (b"upload_id", b"") + b"--x--", field + b"--x--", file, file * 40 + b"--x--", b"--x--", b""]
    bodies += [file[: rng.randrange(len(file))], rng.randbytes(500), foreign + b"--x--"]
    bodies += [b"--x\r\n" + b"A: b\r\n" * 500 + b"\r\n", b"--x\r\nContent-Disposition: " + b"y" * 9000 + b"\r\n\r\n"]
    body = rng.choice(bodies)
    kinds = ["multipart/form-data; boundary=x"] * 5 + [
        "multipart/form-data",
        "text/plain",
        "multipart/form-data; boundary=",
    ]
    query = rng.choice(["", "?upload_id=x", "?upload_id=" + "y" * 300])
    return {
        "method": "POST",
        "url": f"{API}/upload{query}",
        "content": body,
        "headers": {"content-type": rng.choice(kinds)},
    }


def _routes(rng: random.Random, _: str) -> dict[str, Any]:
    """Addresses that are not there, and methods that are not allowed."""
    target = rng.choice(["file=/etc/passwd", "file=http://127.0.0.1:9/", "proxy=http://127.0.0.1:9/", "nothing", "%00"])
    if rng.random() < 0.2:
        return {"method": "GET", "url": f"{API}/queue/data?{rng.choice(['', 'session_hash=gone', 'session_hash=%ff'])}"}
    return {"method": rng.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]), "url": f"{API}/{target}"}


def _lines(rng: random.Random, _: str) -> bytes:
    """What no HTTP client sends."""
    head = b" HTTP/1.1\r\nHost: HOST\r\n"
    post = b"POST " + API.encode() + b"/call/explain" + head + b"Content-Type: application/json\r\n"
    lines = [rng.randbytes(200), b"\r\n\r\n", b"GET", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"]
    lines += [b"GET /" + b"x" * 70_000 + head + b"\r\n", b"GET /\xff\xfe" + head + b"\r\n", b"GET  /" + head + b"\r\n"]
    lines += [b"GET /" + head + b"A: " + b"y" * 90_000 + b"\r\n\r\n", b"GET http://evil.example/" + head + b"\r\n"]
    lines += [b"GET /" + head + b"Host: evil.example\r\n\r\n"]
    ends = [b"Content-Length: 10\r\n\r\n{", b"Content-Length: -1\r\n\r\n", b"Content-Length: x\r\n\r\n"]
    ends += [b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"]
    ends += [b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}{}"]
    return rng.choice([*lines, *(post + end for end in ends)])


def _post(body: Any, route: str = "call/explain") -> dict[str, Any]:
    return {"method": "POST", "url": f"{API}/{route}", "content": json.dumps(body), "headers": _JSON}


def _junk(rng: random.Random) -> Any:
    junk = [None, True, -1, 10**400, "", "x" * 9000, [], {}, {"path": "/etc/passwd"}, [[[]]], "\0", "nope", "\ud800"]
    return rng.choice(junk)


_KINDS = (_values, _shape, _names, _bytes, _events, _forms, _routes, _lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place), "--model", MODEL)
        try:
            picture = Path(place) / "scene.png"
            scene(3).image.save(picture)
            with httpx.Client(base_url=server.url, timeout=_PATIENCE) as http:
                ends, wrong = attack(server.url, min(options.count, 20_000), options.seed, upload(http, picture))
                alive = http.get("/").status_code == 200
        finally:
            server.stop()
        log = server.log.read_text()
        tracebacks = log.count("Traceback")
    print(f"{options.count} malformed requests: {dict(sorted(ends.items()))}; {len(wrong)} wrong")
    print(f"tracebacks in the log: {tracebacks}; the server is {'alive' if alive else 'DEAD'}")
    print(*wrong[:20], *(log[-3000:].splitlines() if tracebacks else []), sep="\n")
    return int(bool(wrong or tracebacks or not alive))


if __name__ == "__main__":
    sys.exit(main())
