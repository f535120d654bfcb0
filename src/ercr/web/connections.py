"""Connection limits: timeouts for slow clients, and which connection is closed when there are too many.

Anyone can open connections and send nothing, or half a request. Such connections must not keep other clients out: they
have a timeout, and they are closed first when the limit is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_MAX_OPEN = 1000  # open at a time
_MAX_PER_ADDRESS = 250  # of one address; a page holds two, and an office may share an address
_OTHER_FILES = 200  # open files that are not connections
_HEAD_TIMEOUT = 10.0  # seconds for the head of a request
_IDLE_TIMEOUT = 10.0  # seconds without a byte in the middle of a body
_BODY_TIMEOUT = 20.0  # seconds for a body, and more for long ones:
_MIN_RATE = 20_000  # bytes a second
_SEND_TIMEOUT = 30.0  # seconds in which a client reads nothing of a response
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b'Retry-After: 10\r\n\r\n{"error": "Too many connections are open: try again later."}'
)


class Connections:
    """All open connections by address. Trusted addresses are proxies: they forward many visitors and have no limit."""

    def __init__(
        self, most: int = _MAX_OPEN, per_address: int = _MAX_PER_ADDRESS, trusted: frozenset[str] = frozenset()
    ):
        self._most = most
        self._per_address = per_address
        self._trusted = trusted
        self._open: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, connection: Connection) -> bool:
        """Accept a new connection; at a limit, only if one that waits for its client can be closed instead."""
        address = connection.address
        if len(self._open[address]) >= self._per_address and address not in self._trusted and not self._drop(address):
            return False
        # the address with most connections loses one
        if self._count >= self._most and not self._drop(max(self._open, key=lambda each: len(self._open[each]))):
            return False
        self._open[address][connection] = None
        self._count += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._abort_overdue)
        return True

    def forget(self, connection: Connection) -> None:
        if connection in self._open[connection.address]:
            del self._open[connection.address][connection]
            self._count -= 1
        if not self._open[connection.address]:
            del self._open[connection.address]

    def _drop(self, address: str) -> bool:
        waiting = [connection for connection in self._open[address] if connection.waits_for_client()]
        if not waiting:
            return False
        # first those that never sent a request
        longest = min(waiting, key=lambda connection: (connection.requests, connection.last_received))
        self.forget(longest)
        longest.transport.abort()
        return True

    def _abort_overdue(self) -> None:
        now = time.monotonic()
        for connection in [connection for same_address in self._open.values() for connection in same_address]:
            if connection.overdue(now):
                connection.transport.abort()
        running = self._count > 0
        self._timer = asyncio.get_running_loop().call_later(1.0, self._abort_overdue) if running else None


class Connection(H11Protocol):
    """Uvicorn's protocol with these limits; `protocol` sets `connections_open`."""

    connections_open: Connections

    def connection_made(self, transport: Any) -> None:
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self.last_received = self._began = time.monotonic()
        self.requests = 0  # received so far
        self._unread_since: float | None = None
        self._admitted = self.connections_open.admit(self)
        super().connection_made(transport)
        if not self._admitted:
            transport.write(_FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections_open.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._admitted:
            return
        self.last_received, before = time.monotonic(), self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self.requests += 1
            self._began = self.last_received

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # the request before this one cannot be answered any more: its task must stop writing
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self._began = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def waits_for_client(self) -> bool:
        """Whether the server can only wait for the client to send."""
        return self._is_idle() or (self.cycle.more_body and not self.flow.read_paused)

    def overdue(self, now: float) -> bool:
        """Whether a timeout of this connection has passed."""
        if self._unread_since is not None:
            return now - self._unread_since > _SEND_TIMEOUT
        if not self.waits_for_client():
            return False
        if self._is_idle():
            return now - self._began > _HEAD_TIMEOUT
        return (
            now - self.last_received > _IDLE_TIMEOUT or now - self._began > _BODY_TIMEOUT + self._length() / _MIN_RATE
        )

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _length(self) -> int:
        with contextlib.suppress(ValueError):
            return next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        return 0


def protocol(connections: Connections) -> type[Connection]:
    """The protocol class for uvicorn, bound to these connections."""
    return type("Connection", (Connection,), {"connections_open": connections})


def connection_limit() -> int:
    """How many connections may be open within the process limit on open files, which is raised first if possible."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return _MAX_OPEN
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MAX_OPEN if soft == resource.RLIM_INFINITY else max(10, min(_MAX_OPEN, soft - _OTHER_FILES))
