"""The limits of the request filter, to the byte: addresses, bodies, and what it passes on unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ercr.web.asgi import Refused, read_body, send_refusal
from ercr.web.bodies import Endpoint, Endpoints
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.request_filter import RequestFilter

EXPLAIN = Endpoint(1, frozenset(), ("prompt",), frozenset({"prompt"}))
API = "/gradio_api/"


class Behind:
    """Stands for the framework: reads two messages and answers; fails where a test asks for it."""

    def __init__(self):
        self.scopes, self.received = [], []
        self.fails = ""

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        if self.fails == "before":
            raise RuntimeError("the framework failed")
        if scope["type"] != "lifespan":
            self.received += [await receive(), await receive()]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Referrer-Policy", b"origin")]})
        if self.fails == "after":
            raise RuntimeError("the stream broke")
        await send({"type": "http.response.body", "body": b"passed"})


@pytest.fixture
def behind():
    return Behind()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Folder(Limits())


class Listeners:
    """Stands for who is known to be there: remembers who listens, and who left before the answer ended."""

    def __init__(self):
        self.heard, self.left, self.cancelled = [], [], []

    @contextlib.contextmanager
    def listening(self, session):
        self.heard.append(session)
        yield lambda: self.left.append(session)

    def cancel(self, event):
        self.cancelled.append(event)


@pytest.fixture
def listeners():
    return Listeners()


@pytest.fixture
def ask(behind, folder, listeners):
    endpoints = Endpoints({3: EXPLAIN}, {"explain": EXPLAIN})
    filtered = RequestFilter(behind, endpoints, folder, Limits(), listeners=listeners)

    def call(method="GET", path="/", query="", parts=(b"",), length=None, headers=None, kind="http"):
        """Messages that a client receives; its body arrives in parts, then it disconnects."""
        most = len(parts) - 1
        waiting = [{"type": "http.request", "body": p, "more_body": at < most} for at, p in enumerate(parts)]
        waiting.append({"type": "http.disconnect"})
        length = sum(map(len, parts)) if length is None else length
        labels = {"host": "127.0.0.1:7860", "content-length": str(length), "content-type": "application/json"}
        labels |= headers or {}
        scope = {
            "type": kind,
            "asgi": {"spec_version": "2.4"},
            "server": ("127.0.0.1", 7860),
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in labels.items()],
        }
        sent = []

        async def receive():
            return waiting.pop(0)

        async def send(message):
            sent.append(message)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, filtered(scope, receive, send)).result()
        return sent

    return call


def status(sent):
    return sent[0]["status"]


def says(sent):
    labels = dict(sent[0]["headers"])
    body = sent[1]["body"]
    assert labels[b"content-type"] == b"application/json"
    assert labels[b"content-length"] == str(len(body)).encode()
    return json.loads(body)["error"]


def test_addresses_are_as_long_as_4096_characters_and_no_longer(ask):
    assert status(ask(query="x" * 4096)) == 200
    assert status(ask(path="/assets/" + "x" * 4088)) == 200
    for sent in (ask(query="x" * 4097), ask(path="/assets/" + "x" * 4089)):
        assert (status(sent), says(sent)) == (414, "The address is too long.")


def test_web_sockets_are_closed_and_lifespan_messages_pass(ask, behind):
    assert ask(kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert behind.scopes == []
    ask(kind="lifespan")
    assert [scope["type"] for scope in behind.scopes] == ["lifespan"]


def test_bodies_are_read_to_the_length_they_state_and_not_beyond(ask, behind):
    body = json.dumps({"data": ["hi"]}).encode()
    place = {"method": "POST", "path": f"{API}call/explain"}
    assert status(ask(**place, parts=(body,))) == 200
    assert status(ask(**place, parts=(body[:3], b"", body[3:]))) == 200
    passed, then = behind.received[-2:]
    assert (json.loads(passed["body"]), passed["more_body"]) == ({"data": ["hi"]}, False)
    assert then == {"type": "http.disconnect"}  # what comes after the body comes from the client
    longer = ask(**place, parts=(body, b" ", b" "), length=len(body))
    assert (status(longer), says(longer)) == (413, "The body is longer than its Content-Length.")
    assert status(ask(**place, parts=(body[:-1], b"} "), length=len(body) + 1)) == 200  # as long as it said
    shorter = ask(**place, parts=(), length=9)
    assert (status(shorter), says(shorter)) == (400, "The connection ended before the body did.")
    for text in ("-1", "1.5", "", "x", str(len(body)).zfill(20)):
        assert status(ask(**place, length=text)) == 411
    assert len(behind.scopes) == 3
    assert status(ask(**place, parts=(body,), length=str(len(body)).zfill(19))) == 200


def test_a_part_of_a_body_that_says_nothing_of_more_is_the_last():
    parts = iter([{"type": "http.request", "body": b"hi"}, {"type": "http.disconnect"}])

    async def receive():
        return next(parts)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, read_body(receive, 2)).result() == b"hi"


def test_a_refusal_about_a_parameter_names_it_as_the_clients_of_the_framework_read_it():
    told = json.loads(Refused(422, "Too long.", "prompt").body())
    assert told["detail"] == [
        {"__type__": "validate", "is_valid": False, "parameter_name": "prompt", "message": "Too long."}
    ]
    assert json.loads(Refused(422, "Too long.").body()) == {"detail": "Too long.", "error": "Too long."}


def test_json_bodies_may_hold_a_million_bytes(ask):
    place = {"method": "POST", "path": f"{API}call/explain"}
    body = json.dumps({"data": ["hi"]}).encode()
    assert status(ask(**place, parts=(body.ljust(1_000_000),))) == 200
    assert status(ask(**place, parts=(body.ljust(1_000_001),))) == 413


def test_a_replaced_body_has_its_own_length_and_content_type(ask, behind):
    body = b'{"data":["hi"]}' + b" " * 30
    headers = {"content-type": "application/json; charset=utf-8", "x-other": "kept", "content-length": str(len(body))}
    assert status(ask("POST", f"{API}call/explain", parts=(body,), headers=headers)) == 200
    passed = behind.received[0]["body"]
    assert sorted(behind.scopes[0]["headers"]) == [
        (b"content-length", str(len(passed)).encode()),
        (b"content-type", b"application/json"),
        (b"host", b"127.0.0.1:7860"),
        (b"x-other", b"kept"),
    ]


def test_answers_carry_the_policies_that_they_lack(ask):
    labels = dict(ask()[0]["headers"])
    assert b"connect-src 'self'" in labels[b"content-security-policy"]
    assert (labels[b"x-content-type-options"], labels[b"Referrer-Policy"]) == (b"nosniff", b"origin")
    assert b"referrer-policy" not in labels
    assert status(ask("HEAD")) == 200
    for method in ("PUT", "DELETE", "OPTIONS"):
        assert status(ask(method)) == 405


def test_a_failure_is_a_500_or_the_end_of_a_stream(ask, behind, caplog):
    behind.fails = "before"
    sent = ask()
    assert (status(sent), says(sent)) == (500, "The server failed; its log shows the error.")
    assert "the framework failed" in caplog.text
    behind.fails = "after"
    sent = ask()
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert (status(sent), sent[1]["body"]) == (200, b"")


def test_reading_routes_pass_with_and_without_a_slash_and_others_do_not(ask):
    for route in ("info", "info/", "queue/status", "heartbeat/x", "call/explain/7"):
        assert status(ask(path=API + route)) == 200, route
    for route in ("infos", "", "join", "queue/join", "uploads"):
        assert status(ask(path=API + route)) == 404, route
    assert status(ask(path="/info")) == 404  # outside the API
    assert status(ask("POST", "/upload")) == 404
    assert status(ask(path=f"{API}queue/data")) == 400
    assert status(ask(path=f"{API}queue/data", query="session_hash=x")) == 200
    for path in ("/config", "/static/x.js", "/svelte/x.js", "/favicon.ico"):
        assert status(ask(path=path)) == 200, path


def test_results_are_served_under_a_policy_of_their_own_while_they_are_there(ask, folder, behind):
    place = folder.new_result()
    (place / "report.html").write_text("<p>found</p>")
    sent = ask(path=f"/results/{place.name}/report.html")
    labels = dict(sent[0]["headers"])
    assert status(sent) == 200
    assert b"".join(message.get("body", b"") for message in sent[1:]) == b"<p>found</p>"
    assert labels[b"content-security-policy"] == b"sandbox allow-scripts allow-downloads; frame-ancestors 'self'"
    assert labels[b"cache-control"] == b"private, max-age=600"
    for path in (f"{place.name}/other.html", place.name, "", "x/y/z", f"{place.name}/x/report.html"):
        sent = ask(path=f"/results/{path}")
        assert (status(sent), says(sent)) == (404, "This result has been deleted: explain the picture again."), path
    assert behind.scopes == []


def test_a_result_deleted_during_the_request_is_a_404(ask, folder, monkeypatch):
    place = folder.new_result()
    (place / "report.html").write_text("x")
    found = iter([place / "report.html", None])
    monkeypatch.setattr(folder, "result", lambda key, name: next(found))
    assert status(ask(path=f"/results/{place.name}/report.html")) == 404


def test_who_listens_to_an_answer_is_known_until_it_leaves(ask, listeners):
    listened = [("queue/data", "session_hash=one", "one"), ("call/explain/two", "", "two")]
    for route, query, session in listened:
        assert status(ask(path=API + route, query=query)) == 200
        assert listeners.heard.pop() == session
        assert listeners.left.pop() == session  # the client's second message says that it is gone
    for method, route in (("GET", "info"), ("GET", "heartbeat/x"), ("HEAD", "call/explain/two")):
        assert status(ask(method, API + route)) == 200
    body = json.dumps({"data": ["hi"]}).encode()
    assert status(ask("POST", f"{API}call/explain", parts=(body,))) == 200
    assert (listeners.heard, listeners.left, listeners.cancelled) == ([], [], [])
    body = json.dumps({"session_hash": "one", "event_id": "seven", "fn_index": 3}).encode()
    ask("POST", f"{API}cancel", parts=(body,))
    assert listeners.cancelled == ["seven"]


def test_uploads_are_answered_here_with_their_paths_and_their_progress_with_nothing(ask, behind, folder):
    form = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\nhi\r\n--x--\r\n'
    sent = ask("POST", f"{API}upload", parts=(form,), headers={"content-type": "multipart/form-data; boundary=x"})
    (path,) = json.loads(sent[1]["body"])
    assert status(sent) == 200
    assert Path(path).is_relative_to(folder.path)
    assert Path(path).read_bytes() == b"hi"
    sent = ask(path=f"{API}upload_progress")
    assert (status(sent), sent[1]["body"]) == (204, b"")
    assert behind.scopes == []


def test_a_refusal_carries_headers_of_its_own():
    sent = []

    async def send(message):
        sent.append(message)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(
            asyncio.run, send_refusal(Refused(401, "Who is it?", headers={"www-authenticate": "Basic"}), send)
        ).result()
    assert (status(sent), says(sent)) == (401, "Who is it?")
    assert (b"www-authenticate", b"Basic") in sent[0]["headers"]
