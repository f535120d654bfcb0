"""Work is abandoned when nobody waits for it any more, and not before."""

from __future__ import annotations

from ercr.web.listeners import Listeners


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_work_continues_while_a_client_listens_and_for_half_a_second_after():
    clock = Clock()
    presence = Listeners(clock)
    with presence.running("s", "e") as abandoned:
        with presence.listening("s"), presence.listening("s"):
            clock.now += 1000
            assert not abandoned()
        assert not abandoned()  # a listener may connect again at once
        clock.now += 0.6
        assert abandoned()
        with presence.listening("s"):
            assert not abandoned()


def test_a_listener_that_disconnected_before_the_work_began_does_not_end_it():
    clock = Clock()
    presence = Listeners(clock)
    with presence.listening("s") as disconnect, presence.listening("other"):
        clock.now += 1
        disconnect()
        clock.now += 5
        with presence.running("s", "e") as abandoned:
            clock.now += 50
            assert not abandoned()
            clock.now += 50  # no listener ever connected
            assert abandoned()


def test_a_disconnect_counts_before_the_request_handler_notices_it():
    clock = Clock()
    presence = Listeners(clock)
    with presence.running("s", "e") as abandoned, presence.listening("s") as disconnect:
        disconnect()
        disconnect()
        clock.now += 1
        assert abandoned()


def test_cancelling_ends_one_event_and_nothing_stays_stored():
    presence = Listeners()
    with presence.listening("s"), presence.running("s", "a") as first, presence.running("s", "b") as second:
        presence.cancel("a")
        presence.cancel("none")
        assert (first(), second()) == (True, False)
    assert not presence._sessions
    assert not presence._cancelled
