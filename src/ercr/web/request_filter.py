"""ASGI middleware in front of the web framework: it passes what the page and the API need and refuses the rest (4xx).

The framework serves many more routes than this page uses, downloads addresses that a client names, and answers some
malformed requests with a 500. So only known routes pass, bodies are limited and read here first, and a file that a
client names must be one that was uploaded to this server.
"""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Any
from urllib.parse import parse_qs

from ercr.web.access_rules import AccessRules
from ercr.web.asgi import (
    Message,
    Receive,
    Refused,
    Send,
    add_security_headers,
    declared_length,
    header,
    headers_for_body,
    read_body,
    replay,
    send_json,
    send_refusal,
)
from ercr.web.bodies import Endpoints, checked_body
from ercr.web.folder import Folder
from ercr.web.limits import Limits
from ercr.web.listeners import Listeners
from ercr.web.multipart import receive_upload

log = logging.getLogger("ercr.web")

_API = "/gradio_api/"
_PAGE_PATHS = {"/", "/config", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt"}
_PAGE_PREFIXES = ("/assets/", "/static/", "/svelte/")
_GET_ROUTES = {
    "info",
    "openapi.json",
    "queue/data",
    "queue/status",
    "upload_progress",
    "theme.css",
    "app_id",
    "login_check",
}
_GET_PREFIXES = ("heartbeat/", "call/")
_JSON_ROUTES = {"queue/join", "run/predict", "cancel", "reset"}
_JSON_PREFIXES = ("call/",)
_MAX_BODY = 1_000_000  # bytes of a JSON body; far more than any sensible prompt
_MAX_ADDRESS = 4096  # characters of a path or a query
_NOT_FOUND = "There is no such page: the start page is at / and the API's description at /gradio_api/info."
_EXPIRED = "This result has been deleted: explain the picture again."
_REPORT_POLICY = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"


class RequestFilter:
    """The filter as an ASGI application around another one."""

    def __init__(
        self,
        app: Any,
        endpoints: Endpoints,
        folder: Folder,
        limits: Limits,
        access: AccessRules | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        self._app = app
        self._endpoints = endpoints
        self._folder = folder
        self._limits = limits
        self._access = access or AccessRules()
        self._listeners = listeners or Listeners()

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
            await send(add_security_headers(message))

        try:
            receive = await self._admit(scope, receive)
            await self._pass_on(scope, receive, answer)
        except Refused as refusal:
            await send_refusal(refusal, answer)
        except Exception as error:
            if started:
                # a stream reports the error in its last event and then ends
                log.info("A response ended early: %r", error)
                await answer({"type": "http.response.body", "body": b""})
                return
            log.error("A request failed: %s %s", scope["method"], scope["path"][:200], exc_info=True)
            await send_refusal(Refused(500, "The server failed; its log shows the error."), answer)

    async def _admit(self, scope: Message, receive: Receive) -> Receive:
        """Check a request and return the `receive` for its body; raises `Refused` for a request that may not pass."""
        self._access.check(scope)
        method, path, route = scope["method"], scope["path"], _route(scope)
        if len(scope["query_string"]) > _MAX_ADDRESS or len(path) > _MAX_ADDRESS:
            raise Refused(414, "The address is too long.")
        if method in ("GET", "HEAD"):
            self._admit_reading(path, scope)
            return receive
        if method != "POST":
            raise Refused(405, f"{method} is not allowed here: use GET or POST.")
        if route == "upload":
            return receive
        if not (route in _JSON_ROUTES or route.startswith(_JSON_PREFIXES)):
            raise Refused(404, _NOT_FOUND)
        # a page of another origin may send other types without a CORS preflight
        if header(scope, b"content-type").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "Send the body as application/json.")
        length = declared_length(scope, _MAX_BODY, "1 MB")
        body = checked_body(route, await read_body(receive, length), self._endpoints, self._folder)
        if route == "cancel":
            self._listeners.cancel(json.loads(body)["event_id"])
        scope["headers"] = headers_for_body(scope["headers"], len(body))
        return replay(body, receive)

    def _admit_reading(self, path: str, scope: Message) -> None:
        if path in _PAGE_PATHS or path.startswith(_PAGE_PREFIXES):
            return
        if path.startswith(f"{_API}file="):
            if not self._folder.contains(path.removeprefix(f"{_API}file=")):
                raise Refused(403, "Only files that were uploaded to this server or made by it can be read.")
            return
        route = _route(scope)
        if route == "queue/data" and _session(scope, route) is None:
            raise Refused(400, "Add the session_hash to listen to.")
        if route in _GET_ROUTES or route.startswith(_GET_PREFIXES):
            return
        if path.startswith("/results/"):
            _, _, key, name = [*path.split("/", 3), "", ""][:4]
            if self._folder.result(key, name) is not None:
                return
            raise Refused(404, _EXPIRED)
        raise Refused(404, _NOT_FOUND)

    async def _pass_on(self, scope: Message, receive: Receive, answer: Send) -> None:
        """Handle uploads and results here, and pass all other admitted requests to the framework."""
        route = _route(scope)
        if route == "upload" and scope["method"] == "POST":
            paths = await receive_upload(scope, receive, self._folder, self._limits)
            await send_json(answer, 200, json.dumps(paths).encode())
            return
        if route == "upload_progress":
            # the page polls for the progress of its upload; an empty response ends the polling
            await send_json(answer, 204, b"")
            return
        session = _session(scope, route) if scope["method"] == "GET" else None
        served = self._result(scope) or self._app
        with self._listeners.listening(session) if session else contextlib.nullcontext(_no_listener) as disconnect:

            async def watched_receive() -> Message:
                message = await receive()
                if message["type"] == "http.disconnect":
                    disconnect()  # at once, because the framework may notice it late
                return message

            await served(scope, watched_receive, answer)

    def _result(self, scope: Message) -> Any:
        """A response with a file of a result, if the request asks for one."""
        from starlette.responses import FileResponse

        if not scope["path"].startswith("/results/"):
            return None
        _, _, key, name = scope["path"].split("/", 3)
        path = self._folder.result(key, name)
        if path is None:
            raise Refused(404, _EXPIRED)
        # the sandbox gives the report an origin of its own, so that it cannot read this page even in a tab
        headers = {"content-security-policy": _REPORT_POLICY, "cache-control": "private, max-age=600"}
        return FileResponse(path, headers=headers)


def _route(scope: Message) -> str:
    path: str = scope["path"]
    return path.removeprefix(_API).rstrip("/") if path.startswith(_API) else ""


def _session(scope: Message, route: str) -> str | None:
    """The session that a request listens to; for a call of the API the framework uses the event's id as session."""
    if route == "queue/data":
        return next(iter(parse_qs(scope["query_string"].decode("latin-1")).get("session_hash", [])), None)
    if route.startswith("call/"):
        return route.rpartition("/")[2]
    return None


def _no_listener() -> None:
    """Stands for `disconnect` where a request listens to no session."""
