"""Who still waits for an answer: what the gate sees of listeners, asked by the work they asked for.

A visitor asks in one request and listens in another. Work is unwanted soon after its last listener has left, after it
was cancelled, and when nobody has come to listen for a long time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_BACK = 0.5  # seconds in which a listener that left may come back
_FIRST = 60.0  # seconds in which one must have come at all


@dataclass
class _Session:
    listeners: int = 0
    running: int = 0
    left: float = 0.0  # when the last listener went


class Presence:
    """Sessions that somebody listens to or that have work running; others are not remembered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._cancelled: dict[str, bool] = {}  # running events, and whether each was cancelled

    @contextmanager
    def listening(self, session: str) -> Iterator[Callable[[], None]]:
        """Somebody listens in here, or until the function that this gives is called."""
        with self._lock:
            self._sessions.setdefault(session, _Session()).listeners += 1
        here = [True]

        def leave() -> None:
            with self._lock:
                if here:
                    here.clear()
                    known = self._sessions[session]
                    known.listeners -= 1
                    known.left = self._clock()
                    self._forget(session)

        try:
            yield leave
        finally:
            leave()

    @contextmanager
    def running(self, session: str, event: str) -> Iterator[Callable[[], bool]]:
        """Work for a session; gives the question whether it is unwanted by now."""
        began = self._clock()
        with self._lock:
            known = self._sessions.setdefault(session, _Session())
            known.running += 1
            self._cancelled[event] = False

        def unwanted() -> bool:
            if self._cancelled.get(event, True):
                return True
            if known.listeners:
                return False
            now = self._clock()
            return now - max(began, known.left) > _FIRST or (known.left >= began and now - known.left > _BACK)

        try:
            yield unwanted
        finally:
            with self._lock:
                known.running -= 1
                self._cancelled.pop(event, None)
                self._forget(session)

    def cancel(self, event: str) -> None:
        """End the work of this event, if it runs."""
        with self._lock:
            if event in self._cancelled:
                self._cancelled[event] = True

    def _forget(self, session: str) -> None:
        known = self._sessions.get(session)
        if known is not None and not (known.listeners or known.running):
            del self._sessions[session]
