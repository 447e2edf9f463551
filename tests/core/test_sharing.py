"""Tests shared fetches: one runs at a time, and at most one waits, however many request it."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.core.sharing import BATCH_SIZE, PendingFetch, SharedFetches
from rsscloud_broker.testing.clock import Clock


class SharedFetchesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fetches: list[tuple[PendingFetch[str], Deferred[str]]] = []
        self.clock = Clock()
        self.shared = SharedFetches(self.fetch, self.clock)

    def fetch(self, pending: PendingFetch[str]) -> Deferred[str]:
        pending.turn.begun = True
        self.fetches.append((pending, Deferred()))
        return self.fetches[-1][1]

    def ask(self, url: str) -> Deferred[str]:
        pending = self.shared.find_or_make(url)
        result: Deferred[str] = Deferred()
        pending.waiters.append(result)
        self.shared.start(pending)
        return result

    def end(self, number: int, result: str = "it") -> None:
        self.fetches[number][1].callback(result)

    def assert_urls(self, *urls: str) -> None:
        self.assertEqual([pending.url for pending, _ in self.fetches], list(urls))

    def test_those_who_ask_during_a_fetch_share_the_next(self) -> None:
        first = self.ask("a")
        later = [self.ask("a") for _ in range(5)]
        self.assert_urls("a")
        self.assertEqual(len(list(self.shared)), 2)
        self.end(0, "first")
        self.assertEqual(self.successResultOf(first), "first")
        self.assert_urls("a", "a")
        for waiter in later:
            self.assertNoResult(waiter)
        self.end(1, "second")
        self.assertEqual([self.successResultOf(waiter) for waiter in later], ["second"] * 5)
        self.assert_urls("a", "a")
        self.assertEqual(list(self.shared), [])

    def test_those_who_ask_before_it_has_begun_share_it(self) -> None:
        """A fetch that waits for a slot has not begun: the topic's server was not called yet."""
        waiting: list[tuple[PendingFetch[str], Deferred[str]]] = []

        def fetch(pending: PendingFetch[str]) -> Deferred[str]:
            waiting.append((pending, Deferred()))
            return waiting[-1][1]

        self.shared = SharedFetches(fetch, self.clock)
        asked = [self.ask("a") for _ in range(3)]
        waiting[0][0].turn.begun = True
        late = self.ask("a")
        waiting[0][1].callback("first")
        self.assertEqual([self.successResultOf(one) for one in asked], ["first"] * 3)
        self.assertNoResult(late)
        self.assertEqual(len(waiting), 2)

    def test_a_failure_reaches_all_who_share_it_and_no_others(self) -> None:
        first = self.ask("a")
        second, third = self.ask("a"), self.ask("a")
        self.end(0, "fine")
        fourth = self.ask("a")
        self.fetches[1][1].errback(ValueError("no good"))
        self.assertEqual(self.successResultOf(first), "fine")
        for waiter in (second, third):
            self.assertEqual(str(self.failureResultOf(waiter, ValueError).value), "no good")
        self.end(2, "fine again")
        self.assertEqual(self.successResultOf(fourth), "fine again")

    def test_who_asks_again_when_told_gets_another_reading(self) -> None:
        again: list[Deferred[str]] = []
        self.ask("a").addCallback(lambda result: again.append(self.ask("a")))
        self.end(0, "first")
        self.assert_urls("a", "a")
        self.end(1, "second")
        self.assertEqual(self.successResultOf(again[0]), "second")

    def test_one_who_stops_waiting_disturbs_nobody(self) -> None:
        gone, stays = self.ask("a"), self.ask("a")
        gone.cancel()
        self.failureResultOf(gone, CancelledError)
        self.end(0, "first")
        self.end(1, "second")
        self.assertEqual(self.successResultOf(stays), "second")

    def test_reading_that_answers_at_once(self) -> None:
        async def at_once(pending: PendingFetch[str]) -> str:
            return pending.url.upper()

        self.shared = SharedFetches(at_once, self.clock)
        self.assertEqual(self.successResultOf(self.ask("a")), "A")
        self.assertEqual(self.successResultOf(self.ask("a")), "A")

    def test_very_many_are_told_in_batches(self) -> None:
        """Other work is done between the batches, and the next fetch does not wait for them."""
        self.ask("a")
        waiters = [self.ask("a") for _ in range(10_000)]
        self.end(0)
        self.ask("a")
        self.end(1)
        self.assert_urls("a", "a", "a")
        told: list[int] = []

        def do_something_else() -> None:
            told.append(sum(waiter.called for waiter in waiters))
            if told[-1] < len(waiters):
                self.clock.callLater(0, do_something_else)

        do_something_else()
        self.clock.advance(1)
        self.assertEqual(told, list(range(BATCH_SIZE, 10_001, BATCH_SIZE)))
