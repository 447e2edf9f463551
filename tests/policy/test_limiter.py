"""Slots for calls: round the sources and their hosts, and none for long to everybody who is
slow."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.policy.host_limiter import HostQuota
from rsscloud_broker.policy.limiter import (
    AT_A_TIME,
    LEAST_PAUSE,
    SHARE,
    FairLimiter,
    Turn,
)
from rsscloud_broker.testing.clock import Clock


class LimiterTestCase(SynchronousTestCase):
    """:ivar inside: the calls that have begun, in order: source, host, and how they are ended.

    :ivar waiting: all calls that were to be made.
    """

    slots, under_way, of_host = 3, 1000, 1000

    def setUp(self) -> None:
        self.clock = Clock()
        self.limiter = FairLimiter(self.clock, self.slots, self.under_way)
        self.inside: list[tuple[str, str, Deferred[None]]] = []
        self.calls: list[Deferred[None]] = []
        self.ended = 0

    def call(self, *sources: str, host: str = "h", urgent: bool = True, count: int = 1) -> Turn:
        for _ in range(count):
            turn = Turn()
            for source in sources:
                turn.join(source)
            calling = self._call(turn, sources[0], host, urgent)
            self.calls.append(Deferred.fromCoroutine(calling))
        return turn

    async def _call(self, turn: Turn, source: str, host: str, urgent: bool) -> None:
        place = HostQuota("fetch", host, self.of_host)
        async with self.limiter.slot(turn, place, urgent=urgent):
            ends: Deferred[None] = Deferred()
            self.inside.append((source, host, ends))
            await ends

    def sources(self) -> str:
        return "".join(source for source, _, _ in self.inside)

    def hosts(self) -> str:
        return "".join(host for _, host, _ in self.inside)

    def end(self) -> None:
        """End the call that has been under way for longest."""
        while self.inside[self.ended][2].called:
            self.ended += 1
        self.inside[self.ended][2].callback(None)

    def end_all(self) -> None:
        for call in self.calls:
            while not call.called:
                self.end()
                self.clock.advance(LEAST_PAUSE)
        self.assertEqual(len(self.limiter), 0, "of those without calls nothing is kept")


class RoundTests(LimiterTestCase):
    slots = 1

    def test_round_the_sources(self) -> None:
        self.call("a", count=5)
        self.call("b", count=3)
        self.call("c")
        self.end_all()
        self.assertEqual(self.sources(), "aabcababa")

    def test_round_the_hosts_of_a_source(self) -> None:
        self.call("a", host="x", count=4)
        self.call("a", host="y", count=2)
        self.call("a", host="z")
        self.end_all()
        self.assertEqual(self.hosts(), "xxyzxyx")

    def test_urgent_ones_go_first_and_the_others_now_and_then(self) -> None:
        self.call("a", urgent=False, count=3)
        self.call("b", count=3 * SHARE)
        self.end_all()
        order = self.sources()
        self.assertEqual(order[:2], "ab")
        self.assertEqual([n for n, source in enumerate(order) if source == "a"], [0, 7, 15])

    def test_who_is_called_off_leaves_no_gap(self) -> None:
        self.call("a", count=4)
        for number in (2, 0):
            self.calls[number].cancel()
            self.failureResultOf(self.calls[number], CancelledError)
        self.end_all()
        self.assertEqual(len(self.inside), 3)

    def test_a_call_for_two_sources_begins_with_the_turn_of_the_first(self) -> None:
        self.call("a", count=6)
        self.call("b")
        turn = self.call("a")
        turn.join("c")
        turn.join("c")
        self.end_all()
        self.assertEqual(self.sources()[:4], "aaba", "its own source has called twice by then")
        self.assertEqual(len(self.inside), 8)
        turn.join("d")
        self.assertEqual(len(self.limiter), 0)

    def test_sources_of_one_network_are_one(self) -> None:
        self.call("2001:db8::1", count=3)
        self.call("2001:db8::2", count=3)
        self.call("192.0.2.7")
        self.end()
        self.end()
        self.assertEqual(self.inside[2][0], "192.0.2.7")
        self.end_all()

    def test_very_many_that_are_over_at_once(self) -> None:
        called: list[int] = []

        async def calling(number: int) -> None:
            async with self.limiter.slot(Turn.of("a"), HostQuota("fetch", "h", 10)):
                called.append(number)

        self.call("a")
        self.calls += [Deferred.fromCoroutine(calling(number)) for number in range(10_000)]
        self.end_all()
        self.assertEqual(called, list(range(10_000)))


class SlowTests(LimiterTestCase):
    def test_a_slow_call_gives_its_slot_to_the_next(self) -> None:
        self.call("a", count=5)
        self.assertEqual(len(self.inside), 3)
        self.clock.advance(0.1 - 0.01)
        self.assertEqual(len(self.inside), 3)
        self.clock.advance(0.02)
        self.assertEqual(len(self.inside), 5)
        self.assertEqual([call.called for call in self.calls], [False] * 5)
        self.end_all()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_not_many_give_their_slots_away_in_one_turn_of_the_reactor(self) -> None:
        """The process may be what is slow, and the answers may have arrived."""
        self.call("a", count=20)
        for begun in range(3, 21, AT_A_TIME):
            self.assertEqual(len(self.inside), begun)
            self.clock.advance(10)
        self.end_all()


class ShareTests(LimiterTestCase):
    slots, under_way, of_host = 100, 20, 10

    def call_hosts(self, source: str, count: int = 30) -> None:
        for number in range(count):
            self.call(source, host=f"{source}{number}")

    def test_a_source_has_no_more_than_is_free(self) -> None:
        for source, in_all in zip("abcde", (10, 15, 18, 19, 20), strict=True):
            self.call_hosts(source)
            self.assertEqual(len(self.inside), in_all)
        for _ in range(20):
            self.end()
        counts = [self.sources()[20:].count(source) for source in "abcde"]
        self.assertLessEqual(max(counts) - min(counts), 1)
        self.call("f")
        self.assertEqual(self.sources()[-1], "f", "there is room for one more")
        self.end_all()

    def test_a_source_has_no_more_at_a_host_than_is_free_there(self) -> None:
        self.call("a", count=20)
        self.assertEqual(self.sources(), "a" * 5)
        self.call("b", count=20)
        self.assertEqual(self.sources(), "aaaaabbb")
        self.call("a", host="other")
        self.assertEqual(self.inside[-1][1], "other")
        self.end_all()

    def test_a_call_that_waits_begins_when_a_source_joins_that_has_room(self) -> None:
        self.call_hosts("a", 10)
        turn = self.call("a", host="x")
        self.assertFalse(turn.begun)
        turn.join("b")
        self.assertTrue(turn.begun)
        self.end_all()

    def test_a_source_after_very_many_that_wait_for_a_host(self) -> None:
        for number in range(1000):
            self.call(f"192.0.{number // 250}.{number % 250}")
        self.call("a", host="other")
        self.clock.pump([0.02] * 40)
        self.assertEqual(self.inside[-1][1], "other")
        self.assertEqual(len(self.inside), 11)
        self.end_all()
