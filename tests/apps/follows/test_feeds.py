"""The follower of other brokers' feeds of pings takes each ping in once, whatever the feed does."""

from __future__ import annotations

from typing import Any

from rsscloud_broker.apps.follows.door import FollowsDoor
from rsscloud_broker.apps.follows.options import FollowedFeed, FollowsOptions
from rsscloud_broker.errors import OutboundError, Unavailable
from rsscloud_broker.interfaces import Position
from rsscloud_broker.model import Ping
from rsscloud_broker.simplefeed.atom import FeedUrls
from rsscloud_broker.simplefeed.entries import Entry, EntryLink
from rsscloud_broker.simplefeed.pings import entry_of
from rsscloud_broker.testing import FakeOutbound, reply
from tests.apps.follows.intakes import HOUR, NOON, THERE, FollowsTestCase, a_ping
from tests.simplefeed.logs import Feed, in_memory

URLS = FeedUrls(f"{THERE}/events/pings/recent", f"{THERE}/events/pings/documents/")


class FeedTests(FollowsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.feed = Feed(self.enterContext(in_memory()), urls=URLS, at=NOON)
        self.web = FakeOutbound(otherwise=self.feed.answer)

    def start(self, **options: Any) -> FollowsDoor:
        return self.follow(FollowsOptions(feeds=(FollowedFeed(URLS.recent, **options),)))

    def publish(self, *pings: int | Ping) -> None:
        """Publish pings, of which some are made now."""
        made = [a_ping(each, self.now()) if isinstance(each, int) else each for each in pings]
        self.feed.append_entries([entry_of(ping) for ping in made])

    def test_begins_with_the_newest_and_takes_each_ping_in_once(self) -> None:
        self.publish(1, 2)
        self.start()
        self.assertEqual(self.intake.names, [])
        self.publish(*range(3, 12))
        self.pass_time(61)
        self.publish(12)
        self.pass_time(120)
        self.assertEqual(self.intake.names, [f"Blog {number}" for number in range(3, 13)])
        self.assertEqual(self.counted("taken"), 10)
        ping, precision = self.intake.pings[0]
        self.assertEqual((ping.origin, precision), (THERE, 1.0))

    def test_nothing_is_missing_after_an_outage(self) -> None:
        self.start()
        self.publish(1)
        self.pass_time(61)
        self.stop()
        for hour in range(5):
            self.publish(*range(10 * hour, 10 * hour + 10))
            self.clock.advance(HOUR)
        self.start()
        self.assertEqual(self.counted("taken"), 50)
        self.assertEqual(set(self.intake.names), {f"Blog {number}" for number in range(50)})

    def test_requests_are_conditional_and_as_far_apart_as_configured(self) -> None:
        self.publish(1)
        self.start(every=100.0)
        self.pass_time(350)
        self.assertEqual(len(self.web.requests), 4)
        self.assertIn("if-none-match", self.web.requests[-1].headers)

    def test_time_is_that_of_the_ping(self) -> None:
        """But a clock that is ahead is not believed."""
        self.start()
        self.publish(0, a_ping(1, NOON - 600), a_ping(2, NOON + 9000))
        self.pass_time(61)
        _, late, ahead = (ping.received_at for ping, _ in self.intake.pings)
        self.assertEqual(late, NOON - 600)
        self.assertLess(ahead, self.now())

    def test_old_pings_and_entries_that_are_no_pings_are_left_out(self) -> None:
        self.start(catch_up_hours=2)
        self.publish(a_ping(1, NOON - 3 * HOUR))
        self.feed.append_entries(
            [Entry("A", NOON), Entry("B", NOON, links=(EntryLink("mailto:b"),))]
        )
        self.publish(2)
        with self.logged() as lines:
            self.pass_time(61)
        self.assertEqual(self.intake.names, ["Blog 2"])
        self.assertEqual((self.counted("too_old"), self.counted("invalid")), (1, 2))
        (line,) = lines
        self.assertIn("is left out: the entry has no link to a page; others are not logged", line)

    def test_full_disk_loses_nothing(self) -> None:
        self.start()
        self.publish(1, 2)
        self.intake.failure = Unavailable("the disk is full")
        with self.logged() as lines:
            self.pass_time(700)
        (line,) = lines
        self.assertIn("the disk is full", line)
        self.intake.failure = None
        with self.logged() as lines:
            self.pass_time(1500)
        self.assertEqual(self.intake.names, ["Blog 1", "Blog 2"])
        self.assertEqual(lines[0], f"{URLS.recent} can be read again.")

    def test_pruned_entries_are_told_and_the_others_taken_in(self) -> None:
        self.start()
        self.publish(1)
        self.pass_time(61)
        self.stop()
        self.publish(*range(2, 20))
        self.feed.prune(3)
        with self.logged() as lines:
            self.start()
        self.assertEqual(self.intake.names[1:], [f"Blog {number}" for number in range(10, 20)])
        said = "is not in the feed any more. Beginning with the oldest entry"
        self.assertIn(said, " ".join(lines))

    def test_feeds_that_cannot_be_followed_are_told_once(self) -> None:
        """Whether the follower tries again by itself, or the feed must be another one first."""
        circle = (
            '<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:1</id><title>A</title>'
            f'<link rel="prev-archive" href="{URLS.recent}"/></feed>'
        ).encode()
        for answer, reason in (
            (OutboundError("nobody is there"), "nobody is there"),
            (reply(200, circle), "the documents link in a circle"),
        ):
            self.web.otherwise = answer
            with self.logged() as lines:
                self.start(begin="oldest")
                self.pass_time(200)
                self.stop()
            (line,) = lines
            self.assertIn(reason, line)
            self.assertIn(f"{URLS.recent} cannot be followed as it should be", line)
        self.assertEqual(self.intake.pings, [])

    def test_feed_that_nobody_names_is_forgotten_after_a_while(self) -> None:
        gone = "http://gone.example/recent"
        long_ago = NOON - 30 * 86_400
        recording = self.store.record_followed_feed(gone, Position("urn:1"), long_ago)
        self.successResultOf(recording)
        self.start()
        self.assertIsNone(self.successResultOf(self.store.followed_feed_position(gone)))
