"""Connections: how long a client may keep one waiting, and which one goes when there are too many.

A connection that waits for its client (for the head of a request, or for the rest of a body) costs nothing to open, so
it must not keep others out: it has a time limit, and it is the first to go where room is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_MOST = 1000  # open at a time
_PER_ADDRESS = 250  # of one address; a page holds two, and an office may share an address
_SPARE_FILES = 200  # open files that are not connections
_HEAD = 10.0  # seconds for the head of a request
_SILENT = 10.0  # seconds without a byte in the middle of a body
_BODY = 20.0  # seconds for a body, and more for long ones:
_RATE = 20_000  # bytes a second
_UNREAD = 30.0  # seconds in which a client takes nothing of an answer
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b'Retry-After: 10\r\n\r\n{"error": "Too many connections are open: try again later."}'
)


class Connections:
    """All that are open, by address. Trusted addresses are proxies, which speak for many visitors."""

    def __init__(self, most: int = _MOST, per_address: int = _PER_ADDRESS, trusted: frozenset[str] = frozenset()):
        self._most = most
        self._per_address = per_address
        self._trusted = trusted
        self._open: defaultdict[str, dict[Connection, None]] = defaultdict(dict)
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, connection: Connection) -> bool:
        """Take a new connection, at the expense of one that waits for its client if need be."""
        address = connection.address
        if len(self._open[address]) >= self._per_address and address not in self._trusted and not self._drop(address):
            return False
        # whoever holds most gives way
        if self._count >= self._most and not self._drop(max(self._open, key=lambda each: len(self._open[each]))):
            return False
        self._open[address][connection] = None
        self._count += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._look)
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
        # those that never asked anything first
        silent = min(waiting, key=lambda connection: (connection.asked, connection.heard))
        self.forget(silent)
        silent.transport.abort()
        return True

    def _look(self) -> None:
        now = time.monotonic()
        for connection in [connection for those in self._open.values() for connection in those]:
            if connection.overdue(now):
                connection.transport.abort()
        running = self._count > 0
        self._timer = asyncio.get_running_loop().call_later(1.0, self._look) if running else None


class Connection(H11Protocol):
    """The server's own protocol with these limits; `connections` is set by `protocol`."""

    connections_open: Connections

    def connection_made(self, transport: Any) -> None:
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self.heard = self._began = time.monotonic()
        self.asked = 0  # requests that have come
        self._unread_since: float | None = None
        self._taken = self.connections_open.admit(self)
        super().connection_made(transport)
        if not self._taken:
            transport.write(_FULL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections_open.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._taken:
            return
        self.heard, before = time.monotonic(), self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self.asked += 1
            self._began = self.heard

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # what was being answered cannot be any more: its task must not try
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
        """Whether the next byte must come from the client."""
        return self._between() or (self.cycle.more_body and not self.flow.read_paused)

    def overdue(self, now: float) -> bool:
        """Whether the client has kept this connection waiting for too long."""
        if self._unread_since is not None:
            return now - self._unread_since > _UNREAD
        if not self.waits_for_client():
            return False
        if self._between():
            return now - self._began > _HEAD
        return now - self.heard > _SILENT or now - self._began > _BODY + self._length() / _RATE

    def _between(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _length(self) -> int:
        with contextlib.suppress(ValueError):
            return next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        return 0


def protocol(connections: Connections) -> type[Connection]:
    """The class that the server makes for each connection."""
    return type("Connection", (Connection,), {"connections_open": connections})


def room_for_connections() -> int:
    """How many may be open, by what the system allows this process; asks for more first."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return _MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else max(10, min(_MOST, soft - _SPARE_FILES))
