"""The door in front of the web framework: what the page and the API need passes, all else is refused with a 4xx.

The framework serves many more routes than this page uses, downloads addresses that a client names, and answers some
malformed requests with a 500. So only known routes pass, bodies are bounded and read here first, and a file that a
client names must be one that was uploaded to this server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from ercr.web.bodies import Endpoints, Refused, checked_body
from ercr.web.folder import Folder
from ercr.web.limits import Limits

log = logging.getLogger("ercr.web")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_API = "/gradio_api/"
_PAGE = {"/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt"}
_PAGE_FOLDERS = ("/assets/", "/static/", "/svelte/")
_READ = {"info", "openapi.json", "queue/data", "queue/status", "upload_progress", "theme.css", "app_id", "login_check"}
_READ_FOLDERS = ("heartbeat/", "call/")
_JSON = {"queue/join", "run/predict", "cancel", "reset"}
_JSON_FOLDERS = ("call/",)
_BODY = 1_000_000  # bytes of a JSON body; far more than a prompt of any sensible length
_FORM = 100_000  # bytes of a form around an upload
_QUERY = 4096
# the page may talk to this server and to nobody else, whatever a dependency or a visitor put into it
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'"
)
_REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"


class Gate:
    """An ASGI application around another one."""

    def __init__(self, app: Any, endpoints: Endpoints, folder: Folder, limits: Limits) -> None:
        self._app = app
        self._endpoints = endpoints
        self._folder = folder
        self._limits = limits

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            started = True
            await send(_with_headers(message))

        try:
            receive = await self._admit(scope, receive)
            served = self._result(scope) or self._app
            await served(scope, receive, answer)
        except Refused as refusal:
            await _refuse(refusal, answer)
        except Exception as error:
            if started:
                # a stream says what is wrong in its last event and then breaks off
                log.info("A response broke off: %r", error)
                await answer({"type": "http.response.body", "body": b""})
                return
            log.error("A request failed: %s %s", scope["method"], scope["path"][:200], exc_info=True)
            await _refuse(Refused(500, "Something failed on the server, and its log says what."), answer)

    async def _admit(self, scope: Message, receive: Receive) -> Receive:
        """What the request's body is to be read from; raises for a request that may not pass."""
        method, path = scope["method"], scope["path"]
        if len(scope["query_string"]) > _QUERY or len(path) > _QUERY:
            raise Refused(414, "The address is too long.")
        if method in ("GET", "HEAD"):
            self._admit_reading(path, scope)
            return receive
        if method != "POST":
            raise Refused(405, f"{method} is not allowed here: use GET or POST.")
        route = path.removeprefix(_API).rstrip("/") if path.startswith(_API) else ""
        if route == "upload":
            _length(scope, self._limits.upload_bytes + _FORM, f"{self._limits.upload_mb:g} MB")
            if not _header(scope, b"content-type").startswith("multipart/form-data; boundary="):
                raise Refused(415, "Send the file as multipart/form-data, in a field named 'files'.")
            return receive
        if route in _JSON or route.startswith(_JSON_FOLDERS):
            length = _length(scope, _BODY, "1 MB")
            body = checked_body(route, await _read(receive, length), self._endpoints, self._folder)
            scope["headers"] = _relabelled(scope["headers"], len(body))
            return _replay(body, receive)
        raise Refused(404, "There is nothing here: the page is at / and the API's description at /gradio_api/info.")

    def _admit_reading(self, path: str, scope: Message) -> None:
        if path in _PAGE or path.startswith(_PAGE_FOLDERS):
            return
        if path.startswith(f"{_API}file="):
            if not self._folder.holds(path.removeprefix(f"{_API}file=")):
                raise Refused(403, "Only files that were uploaded to this server or made by it can be read.")
            return
        route = path.removeprefix(_API).rstrip("/") if path.startswith(_API) else ""
        if route == "queue/data" and "session_hash" not in parse_qs(scope["query_string"].decode("latin-1")):
            raise Refused(400, "Name the session_hash to listen to.")
        if route in _READ or route.startswith(_READ_FOLDERS):
            return
        if path.startswith("/results/"):
            _, _, key, name = [*path.split("/", 3), "", ""][:4]
            if self._folder.result(key, name) is not None:
                return
            raise Refused(404, "This result is no longer here: explain the picture again.")
        raise Refused(404, "There is nothing here: the page is at / and the API's description at /gradio_api/info.")

    def _result(self, scope: Message) -> Any:
        """A response with a file of a result, if that is what was asked for."""
        from starlette.responses import FileResponse

        if not scope["path"].startswith("/results/"):
            return None
        _, _, key, name = scope["path"].split("/", 3)
        path = self._folder.result(key, name)
        if path is None:
            raise Refused(404, "This result is no longer here: explain the picture again.")
        # the headers name the origin of a report as its own, so that it cannot read this page even in a tab
        headers = {"content-security-policy": _REPORT_POLICY, "cache-control": "private, max-age=600"}
        return FileResponse(path, headers=headers)


def _length(scope: Message, most: int, spelled: str) -> int:
    text = _header(scope, b"content-length")
    if not text.isdecimal():
        raise Refused(411, "Send a Content-Length.")
    if int(text) > most:
        raise Refused(413, f"The request is larger than the {spelled} allowed.")
    return int(text)


def _header(scope: Message, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")


async def _read(receive: Receive, length: int) -> bytes:
    body = b""
    while len(body) <= length:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "The connection ended before the body did.")
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            return body
    raise Refused(413, "The body is longer than its Content-Length.")


def _relabelled(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    """The headers of a request whose body was written anew."""
    kept = [(name, value) for name, value in headers if name not in (b"content-length", b"content-type")]
    return [*kept, (b"content-length", str(length).encode()), (b"content-type", b"application/json")]


def _replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, then whatever comes after it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return parts.pop() if parts else await receive()

    return again


def _with_headers(message: Message) -> Message:
    if message["type"] != "http.response.start":
        return message
    headers = list(message.get("headers", []))
    names = {name.lower() for name, _ in headers}
    extra = {
        b"content-security-policy": _POLICY.encode(),
        b"x-content-type-options": b"nosniff",
        b"referrer-policy": b"no-referrer",
    }
    return {**message, "headers": headers + [(name, value) for name, value in extra.items() if name not in names]}


async def _refuse(refusal: Refused, send: Send) -> None:
    body = refusal.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
