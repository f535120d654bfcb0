"""Connections that keep a server waiting are closed; those that are being answered stay."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("uvicorn")
from ercr.web import connections as module
from ercr.web.connections import Connections, connection_limit, protocol


class Transport(asyncio.Transport):
    """A client's end: what it was told, and whether it was cut off."""

    def __init__(self, address):
        super().__init__({"peername": (address, 5000), "sockname": ("127.0.0.1", 7860)})
        self.said, self.gone = b"", False

    def write(self, data):
        self.said += data

    def close(self):
        self.gone = True

    abort = close

    def is_closing(self):
        return self.gone

    def pause_reading(self):
        pass

    resume_reading = set_write_buffer_limits = pause_reading


class Place:
    """A server without sockets, whose application answers when it is told to."""

    def __init__(self, **limits):
        import uvicorn
        from uvicorn.server import ServerState

        self.answer, self.connections, self.state = asyncio.Event(), Connections(**limits), ServerState()
        self.config = uvicorn.Config(
            self._application, http=protocol(self.connections), interface="asgi3", ws="none", log_level="error"
        )
        self.config.load()

    async def _application(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await self.answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def client(self, address="10.0.0.1", said=b""):
        made = self.config.http_protocol_class(config=self.config, server_state=self.state, app_state={})
        made.connection_made(Transport(address))
        if said:
            made.data_received(said)
        return made


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\nabc"


def run(act):
    # in a thread of its own: a browser of another test may keep a loop running in this one
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, act()).result()


def test_the_longest_idle_connection_is_closed_and_never_one_being_answered():
    async def act():
        place = Place(most=100, per_address=4)
        silent = [place.client() for _ in range(2)]
        working, slow = place.client(said=GET), place.client(said=POST)
        stranger = place.client("10.0.0.2")
        await asyncio.sleep(0)
        gone = []
        for _ in range(3):
            place.client(said=GET)
            gone.append([c.transport.gone for c in (*silent, working, slow, stranger)])
        assert gone[0] == [True, False, False, False, False]
        assert gone[1] == [True, True, False, False, False]
        assert gone[2] == [True, True, False, True, False]  # half a body counts as idle, too
        refused = place.client(said=GET)
        assert refused.transport.said.startswith(b"HTTP/1.1 503")
        assert refused.transport.gone
        place.answer.set()
        await asyncio.sleep(0.01)
        assert working.transport.said.startswith(b"HTTP/1.1 200")

    run(act)


def test_at_the_limit_the_address_with_most_connections_loses_one():
    async def act():
        place = Place(most=6, per_address=100)
        crowd = [place.client("10.0.0.1") for _ in range(5)]
        others = [place.client(f"10.0.1.{i}") for i in range(4)]
        assert [c.transport.gone for c in crowd] == [True, True, True, False, False]
        assert not any(c.transport.gone for c in others)

    run(act)


def test_a_trusted_proxy_has_no_limit_of_its_own():
    async def act():
        place = Place(most=50, per_address=3, trusted=frozenset({"127.0.0.1"}))
        through = [place.client("127.0.0.1", GET) for _ in range(20)]
        assert not any(c.transport.gone for c in through)

    run(act)


@pytest.mark.parametrize(
    ("said", "late"), [(b"", 11), (b"GET / HT", 11), (POST, 11), (GET, None), (GET + b"GE", None)], ids=repr
)
def test_waiting_for_a_client_has_a_timeout_and_waiting_for_the_server_none(said, late):
    async def act():
        client = Place().client(said=said)
        await asyncio.sleep(0)
        began = time.monotonic()
        assert not client.overdue(began + 5)
        assert client.overdue(began + (late or 1000)) == (late is not None)

    run(act)


def test_a_body_that_arrives_slowly_has_a_timeout():
    async def act():
        client = Place().client(said=POST)
        began, times = client.last_received, []
        for seconds in range(0, 80, 5):
            client.last_received = began + seconds
            times.append(client.overdue(began + seconds))
        assert times == [seconds > 65 for seconds in range(0, 80, 5)]  # 20 s and 45 for its length

    run(act)


def test_a_response_that_nobody_reads_has_a_timeout():
    async def act():
        client = Place().client(said=GET)
        client.pause_writing()
        assert client.overdue(time.monotonic() + 40)
        client.resume_writing()
        assert not client.overdue(time.monotonic() + 40)

    run(act)


def test_overdue_connections_are_closed_and_none_stays_stored(monkeypatch):
    async def act():
        monkeypatch.setattr(module, "_HEAD_TIMEOUT", 0.0)
        place = Place()
        silent, working = place.client(), place.client(said=GET)
        while not silent.transport.gone:
            await asyncio.sleep(0.05)
        assert not working.transport.gone
        for client in (silent, working):
            client.connection_lost(None)
        assert not place.connections._open
        assert place.connections._count == 0

    run(act)


def test_the_connection_limit_respects_the_system_limit():
    assert 10 <= connection_limit() <= 1000
