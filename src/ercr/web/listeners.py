"""Which clients still listen for their results, so that work which nobody waits for is stopped.

A client starts work by one request and listens for the result by another. Work is abandoned soon after its last
listener has disconnected, after it was cancelled, and when no listener has connected for a long time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_RECONNECT = 0.5  # seconds in which a listener may connect again
_FIRST_LISTENER = 60.0  # seconds in which the first listener must connect


@dataclass
class _Session:
    listeners: int = 0
    running: int = 0
    disconnected: float = 0.0  # time at which the last listener disconnected


class Listeners:
    """Sessions with a listener or with running work; other sessions are not stored."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._cancelled: dict[str, bool] = {}  # running events, and whether each was cancelled

    @contextmanager
    def listening(self, session: str) -> Iterator[Callable[[], None]]:
        """Count a listener inside this block; the function that it yields ends the count earlier."""
        with self._lock:
            self._sessions.setdefault(session, _Session()).listeners += 1
        connected = [True]

        def disconnect() -> None:
            with self._lock:
                if connected:
                    connected.clear()
                    known = self._sessions[session]
                    known.listeners -= 1
                    known.disconnected = self._clock()
                    self._forget(session)

        try:
            yield disconnect
        finally:
            disconnect()

    @contextmanager
    def running(self, session: str, event: str) -> Iterator[Callable[[], bool]]:
        """Count work for a session inside this block; yields a function that says whether the work is abandoned."""
        began = self._clock()
        with self._lock:
            known = self._sessions.setdefault(session, _Session())
            known.running += 1
            self._cancelled[event] = False

        def abandoned() -> bool:
            if self._cancelled.get(event, True):
                return True
            if known.listeners:
                return False
            now = self._clock()
            return now - max(began, known.disconnected) > _FIRST_LISTENER or (
                known.disconnected >= began and now - known.disconnected > _RECONNECT
            )

        try:
            yield abandoned
        finally:
            with self._lock:
                known.running -= 1
                self._cancelled.pop(event, None)
                self._forget(session)

    def cancel(self, event: str) -> None:
        """Mark the work of this event as abandoned, if it runs."""
        with self._lock:
            if event in self._cancelled:
                self._cancelled[event] = True

    def _forget(self, session: str) -> None:
        known = self._sessions.get(session)
        if known is not None and not (known.listeners or known.running):
            del self._sessions[session]
