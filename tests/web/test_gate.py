"""The gate lets through what the page needs, and no path or address of a client's choosing."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ercr.web.bodies import Endpoint, Endpoints
from ercr.web.folder import Folder
from ercr.web.gate import Gate
from ercr.web.limits import Limits

EXPLAIN = Endpoint(2, frozenset({0}), ("image", "prompt"), frozenset({"image"}))
API = "/gradio_api/"


class Behind:
    """Stands for the framework: remembers the bodies that reached it."""

    def __init__(self):
        self.bodies = []

    async def __call__(self, scope, receive, send):
        message = await receive()
        self.bodies.append(message.get("body", b""))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"passed"})


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("gate")))
        folder = Folder(Limits())
    (folder.path / "up").mkdir()
    (folder.path / "up" / "x.png").write_bytes(b"x")
    behind = Behind()
    return Gate(behind, Endpoints({3: EXPLAIN}, {"explain": EXPLAIN}), folder, Limits(upload_mb=1)), behind, folder


def ask(gate, method, path, body=b"", headers=None):
    """Status and text of an answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    labels = {"content-length": str(len(raw))} if headers is None else headers
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in labels.items()],
    }
    sent = []

    async def receive():
        return {"type": "http.request", "body": raw, "more_body": False}

    async def send(message):
        sent.append(message)

    # in a thread of its own: a browser of another test may keep a loop running in this one
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, gate[0](scope, receive, send)).result()
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]).decode()


def test_routes_that_the_page_does_not_use_are_not_there(gate):
    for path in ("", "config", "assets/x.js", f"{API[1:]}info", f"{API[1:]}queue/data?session_hash=x"):
        assert ask(gate, "GET", f"/{path}")[0] == 200, path
    for path in (
        "proxy=http://127.0.0.1/",
        "deep_link",
        "component_server",
        "run/explain",
        "vibe-code",
        "runs",
        "mcp/sse",
    ):
        assert ask(gate, "GET", API + path)[0] == 404, path
        assert ask(gate, "POST", API + path, {"data": []})[0] == 404, path
    assert ask(gate, "GET", "/docs")[0] == 404
    assert ask(gate, "GET", "/monitoring/summary")[0] == 404
    assert ask(gate, "DELETE", "/")[0] == 405


def test_only_own_files_are_served(gate):
    folder = gate[2]
    assert ask(gate, "GET", f"{API}file={folder.path}/up/x.png")[0] == 200
    for path in ("/etc/passwd", f"{folder.path}/up/../../../etc/passwd", "http://127.0.0.1:9/x", "https://x", ""):
        assert ask(gate, "GET", f"{API}file={path}")[0] == 403, path


def test_bodies_are_bounded_and_must_be_what_they_say(gate):
    join, call = f"{API}queue/join", f"{API}call/explain"
    cases = [
        (join, b"{", None, 400, "not JSON"),
        (join, b"[" * 100_000, None, 400, "not JSON"),
        (join, [], None, 400, "JSON object"),
        (join, {"fn_index": 3, "data": [None, ""]}, None, 400, "session_hash"),
        (join, {"fn_index": 9, "data": [], "session_hash": "s"}, None, 404, "no function 9"),
        (join, {"fn_index": "3", "data": [], "session_hash": "s"}, None, 400, "fn_index"),
        (join, {"fn_index": 3, "data": [None], "session_hash": "s"}, None, 400, "takes 2 values, not 1"),
        (f"{API}run/predict", {"fn_index": 3, "data": [None, ""], "session_hash": "s"}, None, 404, "no function 3"),
        (call, {"data": None}, None, 400, "list named data"),
        (call, {"data": ["/etc/passwd", "hi"]}, None, 422, "Upload the picture"),
        (f"{API}call/nothing", {"data": []}, None, 404, "no such endpoint"),
        (f"{API}call/v2/explain", {"prompt": "hi"}, None, 400, "lacks 'image'"),
        (f"{API}call/v2/explain", {"image": None, "size": 1}, None, 400, "no parameter 'size'"),
        (call, b"", {"content-length": "2000000"}, 413, "larger than the 1 MB"),
        (call, b"{}", {}, 411, "Content-Length"),
        (f"{API}upload", b"", {"content-length": "5000000"}, 413, "larger than the 1 MB"),
        (f"{API}upload", b"", {"content-length": "5", "content-type": "image/png"}, 415, "multipart"),
    ]
    for path, body, headers, status, says in cases:
        found, text = ask(gate, "POST", path, body, headers)
        assert (found, says in json.loads(text)["error"]) == (status, True), (path, body, found, text)


def test_an_uploaded_file_passes_without_the_address_beside_it(gate):
    _, behind, folder = gate
    sent = {"path": f"{folder.path}/up/x.png", "url": "http://127.0.0.1:9/", "size": "?"}
    assert ask(gate, "POST", f"{API}call/explain", {"data": [sent, "hi"]})[0] == 200
    passed = json.loads(behind.bodies[-1])["data"][0]
    assert passed == {"path": sent["path"], "meta": {"_type": "gradio.FileData"}}


PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
NESTED = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))
HOSTILE = st.fixed_dictionaries(
    {"path": st.sampled_from(["/etc/passwd", "http://127.0.0.1:9/x.png", "file:///etc/passwd", "..", "", None, 1])},
    optional={"url": st.just("http://127.0.0.1:9/"), "meta": st.just({"_type": "gradio.FileData"}), "x": NESTED},
)


@settings(max_examples=60, deadline=None)
@given(hostile=HOSTILE, steps=st.lists(st.sampled_from(["list", "dict"]), max_size=5), place=st.sampled_from([0, 1, 2]))
def test_no_path_or_address_passes_however_deep_it_hides(gate, hostile, steps, place):
    for step in steps:
        hostile = [1, hostile] if step == "list" else {"a": hostile}
    body = {"fn_index": 3, "session_hash": "s", "data": [None, "hi"], "event_data": None}
    if place == 2:
        body["event_data"] = hostile
    else:
        body["data"][place] = hostile
    before = len(gate[1].bodies)
    assert ask(gate, "POST", f"{API}queue/join", body)[0] == 422
    assert len(gate[1].bodies) == before
