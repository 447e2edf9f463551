"""Tests conditional fetches of topics, and topics that move, end or fail."""

from __future__ import annotations

import gc
import sys
from typing import Any

from twisted.internet.defer import Deferred

from rsscloud_broker import events
from rsscloud_broker.core import FairLimiter
from rsscloud_broker.errors import EndedTopic, TopicUnreadable
from rsscloud_broker.model import NO_VALIDATORS, FetchResult, Validators
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.model.shared import Work, WorkKind
from rsscloud_broker.testing import FakeFetcher
from tests.core.house import FEED, NOW, CoreTestCase, change_detector
from tests.storage.suspects import make_suspect

NEW = "https://feeds.example/new.xml"
VALIDATORS = Validators('W/"1"', "Tue, 29 Sep 2026 12:00:00 GMT")


class ReaderTestCase(CoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        for name in ("record_failure", "topic", "move_topic"):
            self._watch(name)
        self.start()
        self.subscribe()

    def later(self) -> None:
        """Let so much time pass that the cached topics have expired."""
        self.clock.advance(100)


class ConditionalTests(ReaderTestCase):
    def test_what_is_known_is_not_fetched_again(self) -> None:
        self.fetcher.validators[FEED] = VALIDATORS
        self.assertTrue(self.fetch().changed)
        self.later()
        self.assertFalse(self.fetch().changed)
        self.assertEqual(self.fetcher.asked, [(NO_VALIDATORS, 1), (VALIDATORS, 1)])
        status = self.status()
        self.assertEqual((status.result, status.asked_at), ("not modified", NOW + 100))

    def test_other_validators_of_equal_bytes_are_no_change(self) -> None:
        self.fetch()
        for number in range(3):
            self.later()
            self.fetcher.validators[FEED] = Validators(f'"{number}"')
            self.assertFalse(self.fetch().changed)
        self.later()
        self.fetch()
        self.assertEqual(self.fetcher.asked[-1][0], Validators('"2"'))

    def test_not_modified_of_a_topic_that_is_not_known(self) -> None:
        async def fetch(*args: object) -> Fetched:
            return Fetched(None, VALIDATORS)

        self.patch(self.fetcher, "fetch", fetch)
        error = self.failureResultOf(
            self.detector.check_now("http://new.example/"), TopicUnreadable
        )
        self.assertIn("nothing is known", str(error.value))

    def test_what_was_just_recorded_is_not_recorded_again(self) -> None:
        self.fetch(pinged=True)
        self.unavailable.add("record_fetch")
        for _ in range(3):
            self.clock.advance(10)
            self.assertFalse(self.fetch(pinged=True).changed)
        self.unavailable.clear()
        self.later()
        self.fetch(pinged=True)
        self.assertEqual(self.status().pinged_at, NOW + 130)

    def test_what_the_store_waits_for_is_recorded(self) -> None:
        self.fetch()
        self.store_ping()
        self.detector.schedule(FEED)
        self.assertEqual(self.due(), [])

    def test_first_ping_after_a_poll_is_recorded(self) -> None:
        self.fetch()
        self.clock.advance(1)
        self.fetch(pinged=True)
        self.assertEqual(self.status().pinged_at, NOW + 1)


class FailureTests(ReaderTestCase):
    def test_failures_are_in_the_account(self) -> None:
        self.fetch()
        self.fetcher.failures[FEED] = TopicUnreadable(FEED, "status 503")
        for failures in (1, 2):
            self.later()
            self.failureResultOf(self.detector.check_now(FEED), TopicUnreadable)
            status = self.status()
            self.assertEqual((status.failures, status.result), (failures, "status 503"))
        self.fetcher.failures.clear()
        self.fetch()  # which finds what was there before
        self.assertEqual(self.status().failures, 0)

    def test_topic_that_has_ended_three_processes_is_not_fetched(self) -> None:
        self.fetch()
        self.result(make_suspect(self.store, Work(WorkKind.TOPIC, FEED), 3))
        fetched = len(self.fetcher.fetched)
        error = self.failureResultOf(self.detector.check_now(FEED), TopicUnreadable).value
        self.assertTrue(error.refused)
        self.assertEqual(len(self.fetcher.fetched), fetched)
        self.assertIn("has ended or stood still 3 times", self.status().result)
        self.flushLoggedErrors()

    def test_topic_that_may_have_ended_a_process_is_fetched(self) -> None:
        self.fetch()
        work = Work(WorkKind.TOPIC, FEED)
        self.result(make_suspect(self.store, work))
        self.later()
        self.fetch()
        self.assertNotIn(work, self.store.suspects)


class EndTests(ReaderTestCase):
    def test_end(self) -> None:
        self.fetch()
        self.fetcher.failures[FEED] = EndedTopic(FEED, "it is gone")
        self.failureResultOf(self.detector.check_now(FEED), EndedTopic)
        self.assertIn(events.TopicEnded(FEED, "it is gone", NOW), self.bus.events)
        self.assertEqual(self.status().topic.ended, "it is gone")
        del self.fetcher.fetched[:], self.bus.events[:]
        self.failureResultOf(self.detector.check_now(FEED), EndedTopic)
        self.assertEqual((self.fetcher.fetched, self.bus.events), ([], []))

    def test_topic_that_ended_during_a_fetch_can_be_revived_at_once(self) -> None:
        self.fetch()
        fetch = self.fetcher.fetch

        async def end_and_fetch(*args: Any) -> Fetched:
            await self.store.end_topic(FEED, "spam", NOW)
            return await fetch(*args)

        self.patch(self.fetcher, "fetch", end_and_fetch)
        self.assertEqual(self.fetch(pinged=True).topic.ended, "spam")
        self.failureResultOf(self.detector.check_now(FEED), EndedTopic)
        self.patch(self.fetcher, "fetch", fetch)
        self.result(self.store.revive_topic(FEED))
        self.assertEqual(self.fetch().topic.ended, "")

    def test_end_of_what_is_not_known_changes_nothing(self) -> None:
        url = "http://gone.example/"
        self.fetcher.failures[url] = EndedTopic(url, "it is gone")
        self.failureResultOf(self.detector.check_now(url), EndedTopic)
        self.assertIsNone(self.status(url))


class MoveTests(ReaderTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.fetch()
        self.later()
        self.fetcher.moves[FEED] = NEW
        self.fetcher.contents[NEW] = self.fetcher.contents[FEED]

    def test_both_urls_are_the_topic(self) -> None:
        record = self.fetch()
        self.assertEqual((record.topic.url, record.changed), (NEW, False))
        del self.bus.events[:]
        for number, url in enumerate((FEED, NEW)):
            self.later()
            self.fetcher.contents[NEW] = b"<rss>%d</rss>" % number
            self.assertTrue(self.fetch(url).changed)
        self.assertEqual(self.fetcher.fetched[-2:], [NEW, NEW])
        changed = self.published(events.TopicChanged)
        self.assertEqual([one.topic for one in changed], [NEW, NEW])

    def test_back_and_forth(self) -> None:
        self.fetch()
        self.fetcher.moves.clear()
        self.fetcher.moves[NEW] = FEED
        for _ in range(3):
            self.later()
            self.assertEqual(self.fetch().topic.url, NEW)

    def test_what_is_not_known_does_not_move(self) -> None:
        other = "http://other.example/"
        self.fetcher.moves[other] = NEW
        reading: FetchResult = self.result(self.detector.read(other))
        self.assertEqual(reading.url, other)
        self.assertIsNone(self.known(other))


class FeedTests(ReaderTestCase):
    def test_what_a_feed_says_is_kept(self) -> None:
        self.fetcher.contents[FEED] = (
            b"<rss version='2.0'><channel><title>A feed</title><ttl>90</ttl>"
            b"<skipHours><hour>3</hour></skipHours></channel></rss>"
        )
        self.fetch()
        feed = self.status().feed
        self.assertEqual((feed["format"], feed["title"]), ("rss 2.0", "A feed"))
        self.assertEqual((feed["hints"]["ttl_minutes"], feed["hints"]["skip_hours"]), (90, [3]))

    def test_nobody_waits_for_it(self) -> None:
        self.unavailable.add("record_feed")
        self._watch("record_feed")
        self.assertTrue(self.fetch().changed)


class SilentFetcher(FakeFetcher):
    """Its fetches never end."""

    async def fetch(
        self,
        url: str,
        known: Validators = NO_VALIDATORS,
        subscribers: int = 0,
        wanted: Wanted = EVERYTHING,
    ) -> Fetched:
        never: Deferred[Fetched] = Deferred()
        return await never


class DroppedTests(CoreTestCase):
    def test_fetches_that_never_end_are_collected_without_complaints(self) -> None:
        """Python reports what fails while it collects garbage to ``sys.unraisablehook``."""
        complaints: list[str] = []
        self.patch(sys, "unraisablehook", lambda it: complaints.append(str(it.exc_value)))

        def fetch() -> None:
            detector = change_detector(
                self.store,
                SilentFetcher({}),
                self.bus,
                self.clock,
                self.counters,
                FairLimiter(self.clock, slots=1, under_way=1),
            )
            for number in range(3):
                detector.check_now(f"{FEED}?{number}")

        fetch()
        gc.collect()
        self.assertEqual(complaints, [])
