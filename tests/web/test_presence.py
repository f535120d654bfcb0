"""Work ends when nobody waits for it any more, and not before."""

from __future__ import annotations

from ercr.web.presence import Presence


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_work_is_wanted_while_somebody_listens_and_for_a_moment_after():
    clock = Clock()
    presence = Presence(clock)
    with presence.running("s", "e") as unwanted:
        with presence.listening("s"), presence.listening("s"):
            clock.now += 1000
            assert not unwanted()
        assert not unwanted()  # a listener may come back at once
        clock.now += 0.6
        assert unwanted()
        with presence.listening("s"):
            assert not unwanted()


def test_a_listener_that_left_before_the_work_began_does_not_end_it():
    clock = Clock()
    presence = Presence(clock)
    with presence.listening("s") as leave, presence.listening("other"):
        clock.now += 1
        leave()
        clock.now += 5
        with presence.running("s", "e") as unwanted:
            clock.now += 50
            assert not unwanted()
            clock.now += 50  # nobody ever came
            assert unwanted()


def test_the_end_of_a_connection_counts_before_its_handler_notices():
    clock = Clock()
    presence = Presence(clock)
    with presence.running("s", "e") as unwanted, presence.listening("s") as leave:
        leave()
        leave()
        clock.now += 1
        assert unwanted()


def test_cancelling_ends_one_event_and_nothing_is_remembered():
    presence = Presence()
    with presence.listening("s"), presence.running("s", "a") as first, presence.running("s", "b") as second:
        presence.cancel("a")
        presence.cancel("none")
        assert (first(), second()) == (True, False)
    assert not presence._sessions
    assert not presence._cancelled
