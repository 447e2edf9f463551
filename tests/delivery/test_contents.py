"""Tests notifications that carry a content, and topics that end."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from rsscloud_broker.delivery.contents import Contents
from rsscloud_broker.events import ContentFetched, ContentRequested, Event
from rsscloud_broker.model import Content, Denial, FetchResult, Outcome
from rsscloud_broker.model.work import Bounds
from rsscloud_broker.storage import deliveries
from rsscloud_broker.testing import RecordingBus, memory_store
from rsscloud_broker.testing.clock import Clock
from tests.delivery.engine import FEED, NO_ANSWER, NOW, REFUSED, EngineTestCase
from tests.storage.waiting import waiting_checks

READER = "http://reader.example/hook"
OTHER = "http://other.example/hook"
THIRD = "http://third.example/hook"
THIN = "http://thin.example/notify"


class TwoReadersTestCase(EngineTestCase):
    """One reader wants contents, and the other one does not."""

    def setUp(self) -> None:
        super().setUp()
        self.subscribe(READER, content=True)
        self.subscribe(THIN)
        self.start()


class CarriedTests(TwoReadersTestCase):
    def test_content_for_those_who_want_it(self) -> None:
        self.change()
        self.assertEqual(self.called(), [READER, THIN])
        self.assertEqual(self.notifier.contents(), [b"1", None])
        self.assertIsNone(self.newest_content(), "all is done, so it is not kept")

    def test_who_was_down_gets_the_newest_and_no_pile(self) -> None:
        self.notifier.outcomes[READER] = NO_ANSWER
        for _ in range(3):
            self.change()
        self.assertEqual(self.newest_content(), b"3")
        self.notifier.forget()
        self.notifier.outcomes.clear()
        self.advance(7200, 60.0)
        self.assertEqual(self.called(), [READER])
        self.assertEqual(self.notifier.contents(), [b"3"])
        self.assertEqual(self.waiting(), {})
        self.assertIsNone(self.newest_content())

    def test_change_while_it_is_told_brings_the_newest_afterwards(self) -> None:
        self.notifier.holds.add(READER)
        self.change()
        self.change()
        self.notifier.release()
        self.advance(10)
        self.assertEqual(self.notifier.contents(READER), [b"1", b"2"])
        self.assertIsNone(self.newest_content())

    def test_walk_that_is_resumed_carries_its_content(self) -> None:
        self.notifier.holds.update({READER, THIN})
        self.change()
        self.crash()
        self.notifier.holds.clear()
        self.notifier.forget()
        self.start()
        self.advance(1)
        self.assertIn(b"1", self.notifier.contents())
        self.assertIsNone(self.newest_content())

    def test_content_that_is_not_there_yet(self) -> None:
        """A notification waits while its content is fetched again."""
        (subscription, _) = self.subscriptions()
        known = b"something else"
        reading = FetchResult(FEED, b"1" * 32, 1, NOW)
        self.successResultOf(self.store.record_fetch(reading, None))
        self.advance(1)
        self.notifier.forget()
        self.successResultOf(self.store.put_subscription(subscription, known))
        self.distribution._retries.wake_at(self.clock.wall_seconds())
        self.advance(1)
        self.assertEqual(self.called(), [])
        self.record_fetch(b"here it is")
        self.advance(10)
        self.assertEqual(self.notifier.contents(), [b"here it is"])
        self.assertEqual(self.waiting(), {})


class WithoutContentTests(EngineTestCase):
    def test_who_came_after_the_change_is_not_told_of_it(self) -> None:
        self.subscribe(THIN)
        self.notifier.holds.add(THIN)
        self.start_walk(slice_size=1)
        self.subscribe(READER, content=True)
        self.notifier.release()
        self.advance(1)
        self.assertEqual((self.called(), self.waiting(), self.walks()), ([THIN], {}, []))
        self.change()
        self.advance(1)
        self.assertEqual(self.notifier.contents(), [None, None, b"2"])


class LaterTests(EngineTestCase):
    """The store has no room for a content; subscribers get it after the topic is fetched again."""

    bounds = Bounds(contents_of_host=0)

    def setUp(self) -> None:
        super().setUp()
        self.start()
        for url, content in ((READER, True), (OTHER, True), (THIN, False)):
            self.subscribe(url, content=content)

    def read_again(self) -> None:
        """Fetch the topic, now that the store has room."""
        self.store._bounds = Bounds()
        if self.record_fetch(b"%d" % self.contents).content_awaited:
            self.hint(ContentFetched(FEED))

    def test_others_are_told_at_once(self) -> None:
        self.change()
        self.advance(1)
        self.assertEqual(self.called(), [THIN])
        self.assertEqual(self.waiting(), {READER: 0, OTHER: 0})
        self.assertEqual(self.walks(), [])

    def missed(self) -> list[Event]:
        """The events that say that a content is missing, in order."""
        return [event for event in self.bus.events if isinstance(event, ContentRequested)]

    def test_topic_is_to_be_read_once_more(self) -> None:
        self.change()
        self.advance(1)
        self.assertEqual(self.missed(), [ContentRequested(FEED)])
        checks = self.successResultOf(waiting_checks(self.store, 10))
        self.assertEqual([check.url for check in checks], [FEED])

    def test_it_is_asked_for_again_but_not_all_the_time(self) -> None:
        self.change()
        self.advance(3600, 60.0)
        self.assertTrue(5 <= len(self.missed()) <= 15, len(self.missed()))

    def test_content_is_told_although_the_store_is_away_when_it_comes(self) -> None:
        self._watch("make_due_for_content")
        self.change()
        self.advance(7200, 60.0)
        self.notifier.forget()
        self.unavailable.add("make_due_for_content")
        self.read_again()
        self.advance(2)
        self.assertEqual(self.notifier.contents(), [])
        self.unavailable.clear()
        self.advance(11)
        self.assertEqual(self.notifier.contents(), [b"1", b"1"])

    def test_content_that_is_there_before_the_walk_is_over(self) -> None:
        self.notifier.holds.add(THIN)
        self.change()
        self.assertEqual(self.waiting(), {}, "nothing of it is saved yet")
        self.read_again()
        self.notifier.end()
        self.advance(10)
        self.assertEqual(self.notifier.contents(), [None, b"1", b"1"])
        self.assertEqual((self.waiting(), self.newest_content()), ({}, None))

    def test_content_that_gave_way_is_asked_for_when_it_is_due(self) -> None:
        self.store._bounds = Bounds(contents_of_host=15)
        self.notifier.outcomes = {READER: NO_ANSWER, OTHER: NO_ANSWER}
        self.change()
        self.subscribe("http://third.example/", "http://feeds.example/other", content=True)
        self.change("http://feeds.example/other")
        self.assertIsNone(self.newest_content())
        self.notifier.outcomes.clear()
        self.distribution._contents.forget(FEED)
        self.assertEqual(self.missed(), [])
        self.advance(6)
        self.assertEqual(self.missed(), [ContentRequested(FEED)])
        self.contents = 1
        self.read_again()
        self.advance(600)
        self.assertEqual(self.notifier.contents()[-2:], [b"1", b"1"])
        self.assertEqual(self.waiting(), {})


class PushedTests(EngineTestCase):
    def test_each_waits_for_those_before_it(self) -> None:
        self.subscribe(READER, content=True)
        self.subscribe(THIN)
        self.start()
        self.notifier.outcomes = {READER: REFUSED, THIN: REFUSED}
        for body in (b"a", b"b", b"c"):
            self.push(body)
        self.assertEqual(self.notifier.contents(READER), [b"a"])
        self.notifier.outcomes.clear()
        self.advance(10)
        self.assertEqual(self.notifier.contents(READER), [b"a", b"a", b"b", b"c"])
        self.assertEqual(self.notifier.contents(THIN), [None, None])
        self.assertEqual((self.waiting(), self.walks()), ({}, []))
        self.assertIsNone(self.newest_content())

    def test_each_reaches_a_slow_subscriber_in_order(self) -> None:
        """Several contents are pushed during each call of the subscriber."""
        self.subscribe(READER, content=True)
        self.subscribe(OTHER, content=True)
        self.start()
        self.notifier.holds.add(READER)
        bodies = [b"%d" % number for number in range(6)]
        for start in (0, 3):
            for body in bodies[start : start + 3]:
                self.push(body)
                self.advance(1)
            self.assertEqual(self.notifier.contents(OTHER), bodies[: start + 3])
            self.advance(3)
            self.notifier.end()
        while self.waiting():
            self.advance(6)
            self.notifier.end()
            self.advance(1)
        self.assertEqual(self.notifier.contents(READER), bodies)
        self.assertEqual((self.waiting(), self.walks()), ({}, []))
        self.assertIsNone(self.newest_content())

    def test_each_is_carried_in_order_though_the_process_ends(self) -> None:
        self.subscribe(READER, content=True)
        self.start()
        self.notifier.holds.add(READER)
        bodies = [b"a", b"b", b"c"]
        for body in bodies:
            self.push(body)
            self.advance(1)
        self.restart()
        self.advance(5)
        self.assertEqual(self.notifier.contents(READER), [b"a", *bodies])
        self.assertEqual((self.waiting(), self.walks()), ({}, []))

    def assert_renewal_loses_nothing(
        self, url: str, pushed: list[bytes], carried: list[bytes | None], refused: bytes = b""
    ) -> None:
        """Push contents to three subscribers, of whom the last renews with other options meanwhile.

        The call of the first one holds the walk up.  The second one waits for its slot; the last
        one has been read, and its attempt is not submitted yet.

        :param refused: a content that the last one has refused before.
        """
        for other in (OTHER, THIRD):
            self.subscribe(other, content=True)
        self.subscribe(url, content=url != THIN)
        self.start(slice_size=1, in_flight=1, max_slow=0)
        if refused:
            self.notifier.outcomes = {url: REFUSED}
            self.push(refused)
            self.assertEqual(self.waiting(), {url: 1})
            self.notifier.outcomes.clear()
        self.notifier.holds.add(OTHER)
        for body in pushed:
            self.push(body)
        self.put(evolve(self.subscriptions()[-1], options={"secret": "new"}))
        self.notifier.release()
        self.advance(10)
        self.assertEqual(self.notifier.contents(url), carried)
        self.assertEqual((self.waiting(), self.walks()), ({}, []))
        self.assertIsNone(self.newest_content())

    def test_each_is_carried_to_a_subscriber_that_renews_with_other_options(self) -> None:
        self.assert_renewal_loses_nothing(READER, [b"a", b"b"], [b"a", b"b"])

    def test_each_is_carried_after_a_renewal_while_an_earlier_one_waits(self) -> None:
        self.assert_renewal_loses_nothing(READER, [b"b"], [b"a", b"a", b"b"], refused=b"a")

    def test_renewed_subscription_without_content_is_notified_of_a_push(self) -> None:
        self.assert_renewal_loses_nothing(THIN, [b"a"], [None])

    def test_what_does_not_fit_is_logged_and_counted(self) -> None:
        self.patch(deliveries, "MAX_QUEUED", 10)
        self.subscribe(READER, content=True)
        self.start()
        self.notifier.outcomes = {READER: REFUSED}
        with capturedLogs() as logs:
            for number in range(13):
                self.push(b"%d" % number)
        self.assertEqual(self.count("dropped_contents_total"), 2)
        missed = f"{READER} misses a pushed content"
        self.assertEqual([missed in str(formatEvent(event)) for event in logs].count(True), 2)
        self.notifier.outcomes.clear()
        self.advance(120)
        self.assertEqual(
            self.notifier.contents(READER)[1:], [b"%d" % number for number in range(11)]
        )
        self.assertEqual(self.waiting(), {})


class EndedTests(TwoReadersTestCase):
    def test_everybody_is_told_and_let_go(self) -> None:
        self.end_topic("it is gone")
        denied = {(denial.topic, denial.callback.url) for denial in self.notifier.denials}
        self.assertEqual(denied, {(FEED, READER), (FEED, THIN)})
        self.assertIn(
            Denial(FEED, self.notifier.denials[0].callback, "it is gone"), self.notifier.denials
        )
        self.assertEqual(self.notifier.contents(), [], "nobody is notified")
        self.assertEqual((self.subscriptions(), self.walks()), ([], []))

    def test_who_was_down_is_told_later(self) -> None:
        self.notifier.outcomes[READER] = NO_ANSWER
        self.change()
        self.end_topic("it is gone")
        self.assertEqual([one.callback.url for one in self.subscriptions()], [READER])
        self.notifier.outcomes.clear()
        self.advance(7200, 60.0)
        self.assertEqual(self.notifier.denials[-1].callback.url, READER)
        self.assertEqual(self.subscriptions(), [])
        self.assertIsNone(self.newest_content())

    def test_who_never_answers_is_let_go_in_the_end(self) -> None:
        self.notifier.outcomes[READER] = REFUSED
        self.end_topic("it is gone")
        self.advance(3 * 3600, 60.0)
        self.assertEqual(self.subscriptions(), [])
        self.assertEqual(len(self.notifier.denials), 2 + len(self.retries))

    def test_who_is_gone_is_not_told_again(self) -> None:
        self.notifier.outcomes[READER] = Outcome(False, "status 410", gone=True)
        self.end_topic("it is gone")
        self.assertEqual(self.subscriptions(), [])


class LeaseTests(EngineTestCase):
    def test_nobody_is_told_after_its_lease(self) -> None:
        self.subscribe(READER)
        self.notifier.outcomes[READER] = NO_ANSWER
        self.start()
        self.advance(90_000 - 60, 600.0)
        self.change()
        self.assertEqual(self.waiting(), {READER: 1})
        del self.notifier.calls[:]
        self.advance(3600, 60.0)
        self.assertEqual([at for at in self.times(READER) if at >= 90_000], [])
        self.change()
        self.advance(1)
        self.assertEqual([at for at in self.times(READER) if at >= 90_000], [])
        self.assertEqual(self.walks(), [])


class ContentsTests(TestCase):
    def setUp(self) -> None:
        self.store = memory_store()
        self.addCleanup(self.store.stopService)
        self.asked: list[str] = []
        self.table = {"a": b"1" * 40, "b": b"2" * 40, "c": b"3" * 40}

        async def newest(topic: str) -> Content | None:
            self.asked.append(topic)
            return Content(self.table[topic]) if topic in self.table else None

        self.patch(self.store, "newest_content", newest)
        self.bus = RecordingBus()
        self.contents = Contents(self.store, self.bus, Clock(), cache_bytes=100)

    async def bodies(self, *topics: str) -> list[bytes | None]:
        found = [await self.contents.newest(topic) for topic in topics]
        return [None if content is None else content.body for content in found]

    async def test_those_asked_for_last_are_kept(self) -> None:
        await self.bodies("a", "b", "a", "c", "a", "c")
        self.assertEqual(self.asked, ["a", "b", "c"])
        await self.bodies("b")
        self.assertEqual(self.asked, ["a", "b", "c", "b"])

    async def test_changed_topic(self) -> None:
        await self.bodies("a")
        self.table["a"] = b"new"
        self.contents.forget("a")
        self.assertEqual(await self.bodies("a"), [b"new"])
        del self.table["a"]
        self.contents.forget("a")
        self.assertEqual(await self.bodies("a", "a"), [None, None])

    async def test_a_reading_that_ends_after_a_change_is_not_kept(self) -> None:
        """It began before the change, so what it found is old."""
        gate: Deferred[None] = Deferred()

        async def slow(topic: str) -> Content:
            found = Content(self.table[topic])
            await gate
            return found

        self.patch(self.store, "newest_content", slow)
        reading = Deferred.fromCoroutine(self.bodies("a"))
        self.table["a"] = b"new"
        self.contents.forget("a")
        gate.callback(None)
        self.assertEqual(await reading, [b"1" * 40])
        self.assertEqual(await self.bodies("a"), [b"new"])
