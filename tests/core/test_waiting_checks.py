"""Checks that wait in the store are claimed as there is room, fairly by source and by host."""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.waiting_checks import WaitingChecks
from rsscloud_broker.model import host_of
from rsscloud_broker.model.work import Check, CheckState
from rsscloud_broker.testing import memory_store
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.util.retry import StoreRetry
from tests.storage.waiting import PINGED

ONE, OTHER, THIRD, FOURTH = "192.0.2.1", "198.51.100.7", "203.0.113.9", "233.252.0.5"


def feed(host: str, number: int = 0) -> str:
    """The URL of a topic."""
    return f"http://{host}.example/{number}"


class WaitingChecksTests(SynchronousTestCase):
    """At most 32 are in memory, 8 of one host; 4 are claimed at a time."""

    def setUp(self) -> None:
        self.store: Any = memory_store()
        self.addCleanup(self.store.stopService)
        self.clock = Clock(1_790_683_200.0)
        self.taken: list[Check] = []
        self.waiting = WaitingChecks(
            self.store,
            self.clock,
            StoreRetry(self.clock, "Fetching"),
            self.taken.append,
            window=32,
            of_host=8,
            portion=4,
        )
        self.waiting.start()
        self.addCleanup(self.waiting.stop)

    def ask(self, source: str, *urls: str) -> None:
        """Request checks as the broker does."""
        for url in urls:
            room = self.waiting.has_room(source, [url])
            asked = self.store.request_check(url, self.clock.wall_seconds(), True, source, room)
            state = self.successResultOf(asked)
            if state is CheckState.CLAIMED:
                self.waiting.add(url, source)
                self.taken.append(Check(url, source, cause=PINGED))
            else:
                self.waiting.note_left(url, source)

    def answer(self, *urls: str) -> None:
        """Say that the fetches of some topics have ended."""
        for url in urls:
            self.successResultOf(self.store.drop_check(url, self.clock.wall_seconds()))
            self.waiting.done(url)

    def answer_all(self) -> None:
        while held := tuple(self.waiting):
            self.answer(*held)
            self.clock.advance(0.05)

    def by_host(self) -> Counter[str]:
        return Counter(host_of(url).removesuffix(".example") for url in self.waiting)

    def test_a_source_has_half_of_what_there_is(self) -> None:
        self.ask(ONE, *[feed(f"h{number}") for number in range(100)])
        self.assertEqual(len(tuple(self.waiting)), 16)
        self.ask(OTHER, *[feed(f"o{number}") for number in range(100)])
        self.assertEqual(len(tuple(self.waiting)), 24)
        self.ask(THIRD, feed("one"))
        self.assertIn(feed("one"), self.waiting)
        self.answer_all()
        self.assertEqual(len(self.taken), len({check.url for check in self.taken}))
        self.assertEqual(len(self.taken), 201)

    def test_busy_host_leaves_room_for_others_of_the_same_source(self) -> None:
        self.ask(ONE, *[feed("busy", number) for number in range(50)])
        self.assertEqual(self.by_host(), {"busy": 4})
        self.ask(ONE, feed("other"))
        self.assertEqual(self.by_host(), {"busy": 4, "other": 1})
        self.answer(feed("other"), feed("busy", 0), feed("busy", 1), feed("busy", 2))
        self.assertEqual(self.by_host(), {"busy": 1})
        self.clock.advance(0.05)
        self.assertEqual(self.by_host(), {"busy": 3})
        self.answer_all()
        self.assertEqual(len(self.taken), 51)

    def test_host_has_no_more_than_its_limit(self) -> None:
        for number, source in enumerate((ONE, OTHER, THIRD, FOURTH)):
            self.ask(source, *[feed("busy", 10 * number + each) for each in range(8)])
        self.waiting.wake()
        self.assertEqual(self.by_host(), {"busy": 8})

    def test_new_check_does_not_overtake_those_that_wait_longer(self) -> None:
        self.ask(ONE, *[feed("busy", number) for number in range(10)])
        self.answer(feed("busy", 0))
        self.ask(ONE, feed("busy", 99))
        self.assertNotIn(feed("busy", 99), self.waiting)
        self.answer_all()
        self.assertEqual(self.taken[-1].url, feed("busy", 99))
        self.ask(ONE, feed("busy", 100))
        self.assertIn(feed("busy", 100), self.waiting, "nothing waits any more")

    def test_what_others_left_is_claimed_when_woken(self) -> None:
        self.successResultOf(self.store.request_check(feed("a"), 1.0, True, ONE))
        self.assertEqual(self.taken, [])
        self.waiting.wake()
        self.assertEqual(self.taken, [Check(feed("a"), ONE, cause=PINGED)])

    def test_what_was_put_off_is_claimed_at_its_time(self) -> None:
        self.ask(ONE, feed("a"))
        due_at = self.clock.wall_seconds() + 30
        self.successResultOf(self.store.put_off_check(feed("a"), 1, due_at, due_at))
        self.waiting.done(feed("a"))
        self.waiting.wake()
        self.clock.advance(29)
        self.assertEqual(len(self.taken), 1)
        self.clock.advance(1)
        self.clock.advance(0.05)
        self.assertEqual(self.taken[1:], [Check(feed("a"), ONE, 1, PINGED)])

    def test_nothing_is_claimed_after_the_stop(self) -> None:
        self.waiting.stop()
        self.ask(ONE, feed("a"))
        self.waiting.wake()
        self.waiting.wake_at(0.0)
        self.assertEqual((self.taken, self.clock.getDelayedCalls()), ([], []))
