"""The request filter passes what the page needs, and no path or address that a client chose."""

from __future__ import annotations

import asyncio
import base64
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ercr.errors import InputError
from ercr.web.access_rules import AccessRules, allowed_hosts
from ercr.web.asgi import add_security_headers
from ercr.web.bodies import Endpoint, Endpoints
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.request_filter import RequestFilter

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
def filtered(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("filtered")))
        folder = Folder(Limits())
    (folder.path / "up").mkdir()
    (folder.path / "up" / "x.png").write_bytes(b"x")
    behind = Behind()
    return (
        RequestFilter(behind, Endpoints({3: EXPLAIN}, {"explain": EXPLAIN}), folder, Limits(upload_mb=1)),
        behind,
        folder,
    )


HERE = {"host": "127.0.0.1:7860"}
JSON = HERE | {"content-type": "application/json"}


def ask(filtered, method, path, body=b"", headers=None, declared=None, arrived=None):
    """Status and text of an answer; `declared` is the length said to be that of the body, `arrived` its parts."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    parts = [raw] if arrived is None else arrived
    labels = (JSON | {"content-length": str(len(raw) if declared is None else declared)}) | (headers or {})
    labels = {name: value for name, value in labels.items() if value is not None}
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "scheme": "http",
        "server": ("127.0.0.1", 7860),
        "headers": [(name.encode(), value.encode()) for name, value in labels.items()],
    }
    sent = []

    async def receive():
        if not parts:
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    # in a thread of its own: a browser of another test may keep a loop running in this one
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, filtered[0](scope, receive, send)).result()
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]).decode()


def test_routes_that_the_page_does_not_use_are_not_found(filtered):
    for path in ("", "config", "assets/x.js", f"{API[1:]}info", f"{API[1:]}queue/data?session_hash=x"):
        assert ask(filtered, "GET", f"/{path}")[0] == 200, path
    for path in (
        "proxy=http://127.0.0.1/",
        "deep_link",
        "component_server",
        "run/explain",
        "vibe-code",
        "runs",
        "mcp/sse",
    ):
        assert ask(filtered, "GET", API + path)[0] == 404, path
        assert ask(filtered, "POST", API + path, {"data": []})[0] == 404, path
    assert ask(filtered, "GET", "/docs")[0] == 404
    assert ask(filtered, "GET", "/monitoring/summary")[0] == 404
    assert ask(filtered, "DELETE", "/")[0] == 405


def test_only_own_files_are_served(filtered):
    folder = filtered[2]
    assert ask(filtered, "GET", f"{API}file={folder.path}/up/x.png")[0] == 200
    for path in ("/etc/passwd", f"{folder.path}/up/../../../etc/passwd", "http://127.0.0.1:9/x", "https://x", ""):
        assert ask(filtered, "GET", f"{API}file={path}")[0] == 403, path


def test_bodies_are_bounded_and_must_be_what_they_say(filtered):
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
        (call, {"data": None}, None, 400, "list of values named data"),
        (call, {"data": ["/etc/passwd", "hi"]}, None, 422, "Upload the picture"),
        (f"{API}call/nothing", {"data": []}, None, 404, "no such endpoint"),
        (f"{API}call/v2/explain", {"prompt": "hi"}, None, 400, "lacks 'image'"),
        (f"{API}call/v2/explain", {"image": None, "size": 1}, None, 400, "no parameter 'size'"),
        (call, b"", {"content-length": "2000000"}, 413, "larger than the 1 MB"),
        (call, b"", {"content-length": "٣"}, 411, "Content-Length"),
        (call, b"{}", {"content-length": None}, 411, "Content-Length"),
        (call, {"data": [{"path": "\ud800"}, "hi"]}, None, 422, "Upload the picture"),
        (f"{API}upload", b"", {"content-length": "5000000"}, 413, "larger than the 1 MB"),
        (f"{API}upload", b"", {"content-length": "5", "content-type": "image/png"}, 415, "multipart"),
    ]
    for path, body, headers, status, says in cases:
        found, text = ask(filtered, "POST", path, body, headers)
        assert (found, says in json.loads(text)["error"]) == (status, True), (path, body, found, text)


def test_a_body_longer_than_it_said_is_not_read_to_its_end(filtered):
    before = len(filtered[1].bodies)
    whole = json.dumps({"data": [None, "hi"]}).encode()
    for parts in ([whole], [whole[:9], whole[9:]], [whole[:9], *[b" "] * 50, whole[9:]]):
        status, text = ask(filtered, "POST", f"{API}call/explain", declared=len(whole) - 1, arrived=parts)
        assert (status, "longer than its Content-Length" in text) == (413, True)
    endless = [b"x" * 1000] * 9999
    assert ask(filtered, "POST", f"{API}call/explain", declared=5000, arrived=endless)[0] == 413
    assert len(endless) > 9900
    assert len(filtered[1].bodies) == before


def test_an_uploaded_file_passes_without_the_url_sent_with_it(filtered):
    _, behind, folder = filtered
    sent = {"path": f"{folder.path}/up/x.png", "url": "http://127.0.0.1:9/", "size": "?"}
    assert ask(filtered, "POST", f"{API}call/explain", {"data": [sent, "hi"]})[0] == 200
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
def test_no_path_or_address_passes_however_deeply_it_is_nested(filtered, hostile, steps, place):
    for step in steps:
        hostile = [1, hostile] if step == "list" else {"a": hostile}
    body = {"fn_index": 3, "session_hash": "s", "data": [None, "hi"], "event_data": None}
    if place == 2:
        body["event_data"] = hostile
    else:
        body["data"][place] = hostile
    before = len(filtered[1].bodies)
    assert ask(filtered, "POST", f"{API}queue/join", body)[0] == 422
    assert len(filtered[1].bodies) == before


def test_addresses_of_any_length_are_answered_and_long_ones_not_passed_on(filtered):
    before = len(filtered[1].bodies)
    for path in (f"{API}file={filtered[2].path}/{'../' * 2000}", f"/assets/{'x' * 5000}", f"/?{'x' * 5000}"):
        assert ask(filtered, "GET", path)[0] == 414, path[:40]
    assert ask(filtered, "POST", f"{API}call/{'x' * 5000}", {"data": []})[0] == 414
    assert len(filtered[1].bodies) == before
    assert ask(filtered, "GET", f"/assets/{'x' * 900}")[0] == 200


def test_websockets_are_closed_before_they_open(filtered):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": [], "server": ("127.0.0.1", 7860)}
    before = len(filtered[1].bodies)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, filtered[0](scope, receive, send)).result()
    assert [message["type"] for message in sent] == ["websocket.close"]
    assert len(filtered[1].bodies) == before


def test_json_needs_its_content_type(filtered):
    body = {"data": [None, "hi"]}
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "",
        None,
        "application/jsonp",
    ):
        status, text = ask(filtered, "POST", f"{API}call/explain", body, {"content-type": kind})
        assert (status, "as application/json" in text) == (415, True), kind
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        assert ask(filtered, "POST", f"{API}call/explain", body, {"content-type": kind})[0] == 200


FOREIGN = ["evil.example", "127.0.0.1", "127.0.0.1:80", "localhost:7861", "127.0.0.1:7860.evil.example", "::1", "[::1"]
FOREIGN += [
    "localhost:7860@evil.example",
    "evil.example:7860",
    "localhost:07860000",
    "192.168.0.9:7860",
    "",
    "x y:7860",
]
OWN = ["127.0.0.1:7860", "localhost:7860", "LOCALHOST:7860", "[::1]:7860"]


def test_foreign_hosts_and_origins_are_refused_and_own_ones_served(filtered):
    call, body = f"{API}call/explain", {"data": [None, "hi"]}
    for host in OWN:
        for origin in OWN:
            assert ask(filtered, "POST", call, body, {"host": host, "origin": f"http://{origin}"})[0] == 200
    before = len(filtered[1].bodies)
    for name in FOREIGN:
        assert ask(filtered, "POST", call, body, {"host": name, "origin": f"http://{name}"})[0] == 403, name
        assert ask(filtered, "GET", "/", headers={"host": name})[0] == 403, name
        assert ask(filtered, "POST", call, body, {"origin": f"http://{name}"})[0] == 403, name
        assert ask(filtered, "POST", f"{API}upload", b"", {"origin": f"https://{name}"})[0] == 403, name
    for origin in ("null", "http://127.0.0.1:7860/x", "file://", "ftp://127.0.0.1:7860", "https://[", "127.0.0.1:7860"):
        assert ask(filtered, "POST", call, body, {"origin": origin})[0] == 403, origin
    assert ask(filtered, "GET", "/", headers={"host": None})[0] == 403
    assert len(filtered[1].bodies) == before


def test_host_names_of_a_proxy_are_served_when_they_are_allowed(filtered):
    access = AccessRules(allowed_hosts(["Maps.example.org", "other.example:8443", "[fe80::1]:9000"]))
    for host, origin, status in (
        ("maps.example.org", "https://maps.example.org", 200),
        ("maps.example.org:81", "http://maps.example.org", 200),
        ("other.example:8443", "https://other.example:8443", 200),
        ("other.example", "https://other.example", 403),
        ("[fe80::1]:9000", None, 200),
        ("127.0.0.1:7860", "https://maps.example.org", 200),
        ("sub.maps.example.org", None, 403),
    ):
        inner = RequestFilter(filtered[1], Endpoints({3: EXPLAIN}, {"explain": EXPLAIN}), filtered[2], Limits(), access)
        assert ask((inner,), "GET", "/", headers={"host": host, "origin": origin})[0] == status, (host, origin)
    for wrong in ("http://x.example", "x.example/", "", "a b", "x:0", "x:99999", "*"):
        with pytest.raises(InputError, match="--allow-host takes a name"):
            allowed_hosts([wrong])


def test_nothing_passes_without_the_password(filtered):
    inner = (
        RequestFilter(
            filtered[1], filtered[0]._endpoints, filtered[2], Limits(), AccessRules(password="pässword-and-more")
        ),
    )
    before = len(filtered[1].bodies)

    def basic(text):
        return {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}

    wrong = [{}, basic("x:pässword-and-mor"), basic("pässword-and-more"), basic(":"), {"authorization": "Basic !"}]
    wrong += [{"authorization": "Bearer pässword-and-more"}, {"authorization": ""}]
    for headers in wrong:
        for path in ("/", f"{API}info", "/assets/x.js", "/results/x/y"):
            assert ask(inner, "GET", path, headers=headers)[0] == 401, (path, headers)
        assert ask(inner, "POST", f"{API}upload", b"", headers)[0] == 401
    assert len(filtered[1].bodies) == before
    assert ask(inner, "GET", "/", headers=basic("anyone:pässword-and-more"))[0] == 200


def test_no_response_lets_other_origins_read_it():
    cors = [(b"Access-Control-Allow-Origin", b"*"), (b"access-control-allow-credentials", b"true")]
    start = {"type": "http.response.start", "status": 200, "headers": [*cors, (b"x-frame", b"kept")]}
    names = {name.lower() for name, _ in add_security_headers(start)["headers"]}
    assert names == {b"x-frame", b"content-security-policy", b"x-content-type-options", b"referrer-policy"}
