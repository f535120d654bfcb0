"""ASGI helpers: types, request headers, response headers, and refusals as JSON; decides nothing itself."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# the page may connect to this server only, whatever a dependency or a visitor puts into it
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "connect-src 'self'; frame-src 'self'; frame-ancestors 'self'; object-src 'none'; base-uri 'self'; "
    "form-action 'self'"
)


class Refused(Exception):
    """A request that is refused: an HTTP status and one sentence."""

    def __init__(
        self, status: int, message: str, parameter: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.parameter = parameter
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The sentence as JSON; for a parameter, in the form that the clients of the framework show."""
        message: str | list[dict[str, object]] = str(self)
        if self.parameter is not None:
            fields = {"is_valid": False, "parameter_name": self.parameter, "message": message}
            message = [{"__type__": "validate", **fields}]
        return json.dumps({"detail": message, "error": str(self)}).encode()


def header(scope: Message, wanted: bytes) -> str:
    """The value of a request's header, empty where it has none."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")


def declared_length(scope: Message, most: int, limit_text: str) -> int:
    """The Content-Length of a request, which must be present and within the limit."""
    text = header(scope, b"content-length")
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise Refused(411, "Send a Content-Length.")
    if int(text) > most:
        raise Refused(413, f"The request is larger than the {limit_text} allowed.")
    return int(text)


async def read_body(receive: Receive, length: int) -> bytes:
    """The whole body of a request."""
    body = b""
    while len(body) <= length:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "The connection ended before the body did.")
        body += bytes(message.get("body", b""))
        if not message.get("more_body", False):
            break
    if len(body) > length:
        raise Refused(413, "The body is longer than its Content-Length.")
    return body


def headers_for_body(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    """The headers of a request whose body was replaced by JSON of this length."""
    kept = [(name, value) for name, value in headers if name not in (b"content-length", b"content-type")]
    return [*kept, (b"content-length", str(length).encode()), (b"content-type", b"application/json")]


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body which was read already, then whatever comes after it."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return parts.pop() if parts else await receive()

    return again


def add_security_headers(message: Message) -> Message:
    """A response start with security headers and without CORS headers, which would admit other origins."""
    if message["type"] != "http.response.start":
        return message
    headers = [pair for pair in message.get("headers", []) if not pair[0].lower().startswith(b"access-control-")]
    names = {name.lower() for name, _ in headers}
    extra = {
        b"content-security-policy": _POLICY.encode(),
        b"x-content-type-options": b"nosniff",
        b"referrer-policy": b"no-referrer",
    }
    return {**message, "headers": headers + [(name, value) for name, value in extra.items() if name not in names]}


async def send_json(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Send a complete response."""
    labels = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in labels.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def send_refusal(refusal: Refused, send: Send) -> None:
    """Send a refusal as a response."""
    await send_json(send, refusal.status, refusal.body(), refusal.headers)
