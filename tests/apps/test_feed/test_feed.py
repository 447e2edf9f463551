"""When the test feed gets items: on the slot, after restarts, when the clock is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lxml import etree
from twisted.internet.defer import fail
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.apps.test_feed.app import make_test_feed
from rsscloud_broker.apps.test_feed.feed import MAX_ITEMS, TestFeed
from rsscloud_broker.apps.test_feed.items import TABLES
from rsscloud_broker.apps.test_feed.options import TestFeedOptions
from rsscloud_broker.errors import Forbidden, Unavailable
from rsscloud_broker.interfaces import App
from rsscloud_broker.plugins import bundled
from rsscloud_broker.testing import (
    FakeJobs,
    FakePublisher,
    app_parts,
    make_app_tests,
    memory_database,
)
from rsscloud_broker.testing.clock import Clock

#: A quarter of an hour.
QUARTER = 1_000_000_800
EVERY = 900

URL = "http://broker.example/test/rss.xml"


class Contract(make_app_tests(bundled.test_feed)):  # type: ignore[misc] # made at run time
    """The test feed is an application as all others."""


class FeedTestCase(SynchronousTestCase):
    every = EVERY

    def setUp(self) -> None:
        self.database = memory_database(TABLES)
        self.clock = Clock(QUARTER + 1)
        self.publisher = FakePublisher(self.database)
        self.jobs = FakeJobs()
        self.start()

    def start(self) -> None:
        """Start a broker with the database that is there."""
        parts = app_parts(
            TABLES,
            database=self.database,
            clock=self.clock,
            publisher=self.publisher,
            jobs=self.jobs,
        )
        self.app: App = make_test_feed(TestFeedOptions(self.every), parts)
        (self.service,) = self.app.services
        self.service.startService()
        self.addCleanup(lambda: self.service.running and self.service.stopService())

    def restart(self) -> None:
        self.service.stopService()
        self.start()

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([1.0] * int(seconds) + [seconds % 1])

    def play(self, *steps: float | list[float] | Callable[[], object]) -> None:
        """Let quarters pass, or do something; a list has the quarters whose items there must be."""
        for step in steps:
            if callable(step):
                step()
            elif isinstance(step, list):
                self.assertEqual(self.slots(), [round(EVERY * quarter) for quarter in step])
            else:
                self.pass_time(EVERY * step)

    def set_wall(self, quarters: float) -> Callable[[], None]:
        """What sets the wall clock by some quarters."""
        return lambda: self.clock.set_wall(EVERY * quarters)

    def content(self, url: str = URL) -> Any:
        (topics,) = self.app.topics
        return self.successResultOf(topics.read(url))  # type: ignore[arg-type] # it is one

    def published(self) -> int:
        return len(self.publisher.published)

    def about(self) -> TestFeed:
        (door,) = self.app.front_doors
        feed: TestFeed = door._feed  # type: ignore[attr-defined] # it has
        return feed

    def slots(self) -> list[int]:
        """The slots of the items, the newest first, in seconds after `QUARTER`."""
        return [each.slot - QUARTER for each in self.about().items]

    def guids(self) -> list[str]:
        feed: Any = etree.fromstring(self.content().body)
        return [str(guid) for guid in feed.xpath("//guid/text()")]


class ItemsTests(FeedTestCase):
    def test_first_item_comes_at_the_start(self) -> None:
        self.assertEqual(self.slots(), [0])
        ((url, content, source),) = self.publisher.published
        self.assertEqual((url, content, source), (URL, self.content(), ""))
        self.assertIsNone(self.content(f"{URL}?x"))

    def test_next_item_comes_on_the_quarter(self) -> None:
        self.pass_time(EVERY - 1.5)
        self.assertEqual(self.slots(), [0])
        self.pass_time(0.6)
        self.assertEqual(self.slots(), [EVERY, 0])
        self.assertEqual(self.published(), 2)
        self.assertEqual(self.publisher.published[-1][1], self.content())

    def test_the_feed_has_the_newest_items(self) -> None:
        """Each was published once."""
        self.play(4, [4, 3, 2, 1, 0], MAX_ITEMS - 1, [*range(MAX_ITEMS + 3, 3, -1)])
        self.assertEqual(self.published(), MAX_ITEMS + 4)
        before = self.content()
        self.restart()
        self.assertEqual(self.content(), before)

    def test_guids_never_change(self) -> None:
        self.play(1)
        before = self.guids()
        self.play(self.restart, 1)
        self.assertEqual(self.guids()[1:], before)
        self.assertEqual(len(set(self.guids())), 3)


class RestartTests(FeedTestCase):
    def test_nothing_is_doubled(self) -> None:
        before = self.content()
        self.restart()
        self.assertEqual((self.content(), self.published()), (before, 1))
        self.play(1, [1, 0])

    def test_only_what_was_slept_through_is_missing(self) -> None:
        self.play(self.service.stopService, 3.5, self.start, [3, 0], 1, [4, 3, 0])

    def test_another_period(self) -> None:
        self.every = 60
        self.play(self.restart, 1 / 15, [1 / 15, 0])
        self.every = EVERY
        self.play(self.restart, [1 / 15, 0], 1, [1, 1 / 15, 0])


class OtherNodeTests(FeedTestCase):
    """Another node may make the item, or have made it."""

    def setUp(self) -> None:
        super().setUp()
        self.jobs.shares = True
        self.makers_service = self.service
        self.start()  # one more node
        self.service.stopService()

    def test_its_items_are_served_at_once(self) -> None:
        before = self.content()
        self.play(1)
        self.assertEqual(self.published(), 2)
        self.assertNotEqual(self.content(), before)
        self.play([1, 0])
        self.assertEqual(self.content(), self.publisher.published[-1][1])

    def test_item_that_it_has_made_is_not_made_again(self) -> None:
        self.play(1, self.makers_service.stopService, self.service.startService)
        self.assertEqual(self.published(), 2)
        self.play(1, [2, 1, 0])
        self.assertEqual(self.published(), 3)

    def test_without_the_database_the_last_one_is_served(self) -> None:
        before = self.content()
        self.patch(self.database, "read", lambda operation: fail(Unavailable("it is down")))
        self.assertEqual(self.content(), before)


class SecondsTests(FeedTestCase):
    every = 1

    def test_an_item_in_each_second(self) -> None:
        first = self.slots()
        self.pass_time(3)
        self.assertEqual(self.slots(), [first[0] + n for n in (3, 2, 1, 0)])
        self.assertIn(b"<ttl>1</ttl>", self.content().body)


class OddPeriodTests(FeedTestCase):
    every = 7

    def test_items_are_multiples_since_the_epoch(self) -> None:
        self.pass_time(20)
        slots = [slot + QUARTER for slot in self.slots()]
        self.assertEqual([slot % 7 for slot in slots], [0] * len(slots))
        self.assertEqual(slots[0] - slots[-1], 7 * (len(slots) - 1))


class ClockTests(FeedTestCase):
    def test_set_back_a_little(self) -> None:
        """As the system does at once after the start: nothing comes twice."""
        self.play(1, self.set_wall(-1 / 180), 1 / 30, [1, 0], self.restart, [1, 0], 1, [2, 1, 0])

    def test_when_the_next_one_comes(self) -> None:
        """What the page says is what happens, also after the clock was set."""
        for wall in (None, -5, -EVERY - 5, -3600, 10 * EVERY):
            if wall is not None:
                self.clock.set_wall(wall)
            for _ in range(3):
                self.pass_time(100)
                said = self.about().next_at(self.clock.wall_seconds())
                before = self.guids()
                self.pass_time(said - self.clock.wall_seconds() - 2)
                self.assertEqual(self.guids(), before, wall)
                self.pass_time(4)
                self.assertEqual(self.slots()[0], said - QUARTER, wall)

    def test_set_back_an_hour(self) -> None:
        """The feed goes on: nobody waits for an hour."""
        self.play(1, self.set_wall(-4), 1, [-2, -3, 1, 0], 4, [2, 1, 0, -1, -2, -3, 1, 0])
        self.assertEqual(len(set(self.guids())), 8)  # the same slots again, as other items

    def test_set_forward(self) -> None:
        self.play(self.set_wall(10), 1 / 90, [10, 0], self.set_wall(-10), 1, [1, 0, 10, 0])


class FailureTests(FeedTestCase):
    def test_database_is_away(self) -> None:
        self.publisher.failure = Unavailable("the disk is full")
        with capturedLogs() as logs:
            self.play(1)
        self.assertIn("test feed: the disk is full", formatEvent(logs[0]))
        self.assertEqual(self.slots(), [0])
        self.publisher.failure = None
        self.pass_time(61)  # it does not wait for the next quarter
        self.assertEqual(self.slots(), [EVERY, 0])

    def test_failure_after_the_item_was_stored(self) -> None:
        """It is not made once more."""
        publish = self.publisher.publish

        async def interrupted(*arguments: Any) -> None:
            await publish(*arguments)
            self.publisher.publish = publish  # type: ignore[method-assign] # once only
            raise RuntimeError("after the commit")

        self.publisher.publish = interrupted  # type: ignore[assignment,method-assign] # for this test
        self.pass_time(EVERY + 61)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual((self.slots(), self.published()), ([EVERY, 0], 2))

    def test_topic_that_is_blocked(self) -> None:
        self.publisher.failure = Forbidden("this topic is blocked")
        with capturedLogs() as logs:
            self.pass_time(EVERY + 300)
        said = [formatEvent(event) for event in logs]
        self.assertEqual(said, ["The test feed gets no item: this topic is blocked."])
        self.publisher.failure = None
        self.play(1, [2, 0])
