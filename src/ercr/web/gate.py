"""The door in front of the web framework: what the page and the API need passes, all else is refused with a 4xx.

The framework serves many more routes than this page uses, downloads addresses that a client names, and answers some
malformed requests with a 500. So only known routes pass, bodies are bounded and read here first, and a file that a
client names must be one that was uploaded to this server.
"""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Any
from urllib.parse import parse_qs

from ercr.web.asgi import (
    Message,
    Receive,
    Refused,
    Send,
    answer_json,
    declared_length,
    header,
    read_body,
    refuse,
    relabelled,
    replay,
    with_headers,
)
from ercr.web.bodies import Endpoints, checked_body
from ercr.web.door import Door
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.presence import Presence
from ercr.web.receiving import receive_upload

log = logging.getLogger("ercr.web")

_API = "/gradio_api/"
_PAGE = {"/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt"}
_PAGE_FOLDERS = ("/assets/", "/static/", "/svelte/")
_READ = {"info", "openapi.json", "queue/data", "queue/status", "upload_progress", "theme.css", "app_id", "login_check"}
_READ_FOLDERS = ("heartbeat/", "call/")
_JSON = {"queue/join", "run/predict", "cancel", "reset"}
_JSON_FOLDERS = ("call/",)
_BODY = 1_000_000  # bytes of a JSON body; far more than a prompt of any sensible length
_QUERY = 4096
_NOTHING = "There is nothing here: the page is at / and the API's description at /gradio_api/info."
_GONE = "This result is no longer here: explain the picture again."
_REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"


class Gate:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: Any,
        endpoints: Endpoints,
        folder: Folder,
        limits: Limits,
        door: Door | None = None,
        presence: Presence | None = None,
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._folder = folder
        self._limits = limits
        self._door = door or Door()
        self._presence = presence or Presence()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})  # the page uses none

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            started = True
            await send(with_headers(message))

        try:
            receive = await self._admit(scope, receive)
            await self._pass_on(scope, receive, answer)
        except Refused as refusal:
            await refuse(refusal, answer)
        except Exception as error:
            if started:
                # a stream says what is wrong in its last event and then breaks off
                log.info("A response broke off: %r", error)
                await answer({"type": "http.response.body", "body": b""})
                return
            log.error("A request failed: %s %s", scope["method"], scope["path"][:200], exc_info=True)
            await refuse(Refused(500, "Something failed on the server, and its log says what."), answer)

    async def _admit(self, scope: Message, receive: Receive) -> Receive:
        """What the request's body is to be read from; raises for a request that may not pass."""
        self._door.check(scope)
        method, path, route = scope["method"], scope["path"], _route(scope)
        if len(scope["query_string"]) > _QUERY or len(path) > _QUERY:
            raise Refused(414, "The address is too long.")
        if method in ("GET", "HEAD"):
            self._admit_reading(path, scope)
            return receive
        if method != "POST":
            raise Refused(405, f"{method} is not allowed here: use GET or POST.")
        if route == "upload":
            return receive
        if not (route in _JSON or route.startswith(_JSON_FOLDERS)):
            raise Refused(404, _NOTHING)
        # other types are those that a page of another origin may send without asking
        if header(scope, b"content-type").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "Send the body as application/json.")
        length = declared_length(scope, _BODY, "1 MB")
        body = checked_body(route, await read_body(receive, length), self._endpoints, self._folder)
        if route == "cancel":
            self._presence.cancel(json.loads(body)["event_id"])
        scope["headers"] = relabelled(scope["headers"], len(body))
        return replay(body, receive)

    def _admit_reading(self, path: str, scope: Message) -> None:
        if path in _PAGE or path.startswith(_PAGE_FOLDERS):
            return
        if path.startswith(f"{_API}file="):
            if not self._folder.holds(path.removeprefix(f"{_API}file=")):
                raise Refused(403, "Only files that were uploaded to this server or made by it can be read.")
            return
        route = _route(scope)
        if route == "queue/data" and _session(scope, route) is None:
            raise Refused(400, "Name the session_hash to listen to.")
        if route in _READ or route.startswith(_READ_FOLDERS):
            return
        if path.startswith("/results/"):
            _, _, key, name = [*path.split("/", 3), "", ""][:4]
            if self._folder.result(key, name) is not None:
                return
            raise Refused(404, _GONE)
        raise Refused(404, _NOTHING)

    async def _pass_on(self, scope: Message, receive: Receive, answer: Send) -> None:
        """Serve what was admitted: uploads and results here, all else behind the gate."""
        route = _route(scope)
        if route == "upload" and scope["method"] == "POST":
            paths = await receive_upload(scope, receive, self._folder, self._limits)
            await answer_json(answer, 200, json.dumps(paths).encode())
            return
        if route == "upload_progress":
            # the page asks how far its upload is; to say nothing ends the asking
            await answer_json(answer, 204, b"")
            return
        session = _session(scope, route) if scope["method"] == "GET" else None
        served = self._result(scope) or self._app
        with self._presence.listening(session) if session else contextlib.nullcontext(_nothing) as leave:

            async def heard() -> Message:
                message = await receive()
                if message["type"] == "http.disconnect":
                    leave()  # at once: whoever serves this may take its time to notice
                return message

            await served(scope, heard, answer)

    def _result(self, scope: Message) -> Any:
        """A response with a file of a result, if that is what was asked for."""
        from starlette.responses import FileResponse

        if not scope["path"].startswith("/results/"):
            return None
        _, _, key, name = scope["path"].split("/", 3)
        path = self._folder.result(key, name)
        if path is None:
            raise Refused(404, _GONE)
        # the headers name the origin of a report as its own, so that it cannot read this page even in a tab
        headers = {"content-security-policy": _REPORT_POLICY, "cache-control": "private, max-age=600"}
        return FileResponse(path, headers=headers)


def _route(scope: Message) -> str:
    path: str = scope["path"]
    return path.removeprefix(_API).rstrip("/") if path.startswith(_API) else ""


def _session(scope: Message, route: str) -> str | None:
    """The session that a request listens to; the framework gives each call of the API one, named as its event."""
    if route == "queue/data":
        return next(iter(parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [])), None)
    if route.startswith("call/"):
        return route.rpartition("/")[2]
    return None


def _nothing() -> None:
    """Nobody was listening."""
