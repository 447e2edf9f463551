"""A follower processes each entry once at least and in order, whatever the feed does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.interfaces import (
    OutboundRequest,
    Position,
    parse_directly,
)
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.errors import FeedUnavailable, FollowError
from rsscloud_broker.simplefeed.follower import Begin, Follower
from rsscloud_broker.simplefeed.markers import MemoryMarker
from rsscloud_broker.simplefeed.waiting import LONGEST_REST, FollowerLimits
from rsscloud_broker.testing import Clock
from tests.simplefeed.logs import in_memory
from tests.simplefeed.publishing import (
    TOO_LARGE,
    UNREACHABLE,
    URLS,
    Client,
    Collector,
    Feed,
    answer,
    titles,
)

LINK = '<link rel="{}" href="{}"/>'
ATOM = '<feed xmlns="http://www.w3.org/2005/Atom">{}</feed>'


def feed_of(*entries: tuple[str, int], **links: str) -> Any:
    """The answer with a document of entries with an id and a day."""
    inside = "".join(LINK.format(rel.replace("_", "-"), url) for rel, url in links.items())
    for identity, day in entries:
        inside += (
            f"<entry><id>{identity}</id><title>{identity}{day}</title>"
            f"<updated>2013-01-{day:02}T00:00:00Z</updated></entry>"
        )
    return answer(ATOM.format(inside).encode())


class FollowerCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.feed = Feed(self.enterContext(in_memory()))
        self.client = Client(self.feed)
        self.handler = Collector()
        self.marker = MemoryMarker()
        self.clock = Clock()
        self.told: list[str] = []

    def follower(self, begin: Begin | None = None, **limits: Any) -> Follower:
        return Follower(
            self.client,
            URLS.recent,
            self.handler,
            self.marker,
            self.clock,
            parse=parse_directly,
            begin=begin,
            tell=self.told.append,
            limits=FollowerLimits(**limits),
        )

    def catch_up(self, begin: Begin | None = None, **limits: Any) -> None:
        """Start a follower, as after a crash, and have it process what there is."""
        running = Deferred.fromCoroutine(self.follower(begin, **limits).catch_up())
        self.successResultOf(running)

    def failure(self, begin: Begin | None = None, **limits: Any) -> str:
        running = Deferred.fromCoroutine(self.follower(begin, **{"tries": 1} | limits).catch_up())
        return str(self.failureResultOf(running, FollowError).value)

    def start(self, **limits: Any) -> tuple[Follower, Deferred[None]]:
        follower = self.follower(**limits)
        running = Deferred.fromCoroutine(follower.run())
        self.addCleanup(running.addErrback, lambda failure: None)
        self.addCleanup(follower.stop)
        return follower, running


class CatchUpTests(FollowerCase):
    def test_from_the_oldest_entry(self) -> None:
        self.feed.append(8)
        self.catch_up()
        self.assertEqual(self.handler.titles, titles(8))
        self.assertEqual(self.told, [])
        position = self.marker.position
        assert position is not None
        self.assertEqual(position.document, "http://a.example/documents/3")

    def test_every_length_at_every_beginning(self) -> None:
        """However much comes in between, the follower goes on where it stopped."""
        for more in (0, 1, 2, 3, 4, 7, 10, 1):
            self.feed.append(more)
            self.catch_up()
            self.assertEqual(self.handler.titles, titles(len(self.handler.titles)))
        self.assertEqual(len(self.handler.titles), 28)

    def test_goes_back_no_further_than_needed(self) -> None:
        self.feed.append(30)
        self.catch_up()
        self.feed.append(1)
        self.client.asked.clear()
        self.catch_up()
        self.assertNotIn("http://a.example/documents/8", self.client.asked)
        self.assertLess(len(self.client.asked), 6)

    def test_goes_back_without_the_url_of_the_document(self) -> None:
        self.feed.append(5)
        self.catch_up()
        position = self.marker.position
        assert position is not None
        for document in ("", "http://a.example/documents/99", URLS.of(1)):
            self.marker.position = Position(position.entry, position.updated, document)
            self.handler.titles.clear()
            self.feed.append(6)
            self.catch_up()
            self.assertEqual(len(self.handler.titles), 6)
            position = self.marker.position
            self.assertEqual(self.told, [])

    def test_recent_document_that_grows_meanwhile(self) -> None:
        """Documents are archived while the follower reads: nothing is missed or out of order."""
        self.feed.append(7)
        old, more = self.client.request, iter([1, 5, 2, 9, 0, 0])

        async def growing(*arguments: Any, **options: Any) -> Any:
            found = await old(*arguments, **options)
            self.feed.append(next(more, 0))
            return found

        self.patch(Client, "request", lambda _, *arguments: growing(*arguments))
        for _ in range(6):
            self.catch_up()
        self.assertEqual(self.handler.titles, titles(24))
        self.assertEqual(self.told, [])

    def test_batches(self) -> None:
        saved: list[Position] = []

        @define
        class Counting(MemoryMarker):
            async def save(self, position: Position) -> None:
                saved.append(position)

        self.feed.append(8)
        for batch, count in ((1, 8), (3, 3), (5, 2), (100, 1)):
            saved.clear()
            self.marker, self.handler = Counting(), Collector(batch)
            self.marker.position = None
            self.catch_up()
            self.assertEqual(self.handler.titles, titles(8))
            self.assertEqual(len(saved), count)

    def test_position_is_saved_before_a_slow_batch_is_full(self) -> None:
        clock, marker = self.clock, self.marker
        saved: list[str] = []

        @define
        class Slow(Collector):
            async def handle(self, entries: Sequence[Entry], document: str) -> None:
                saved.append("" if marker.position is None else marker.position.document)
                clock.advance(0.2)

        self.feed.append(8)
        self.handler = Slow(100)
        self.catch_up()
        self.assertEqual(saved, ["", *(f"http://a.example/documents/{n}" for n in (1, 2))])

    def test_newest(self) -> None:
        self.feed.append(6)
        self.catch_up(Begin.NEWEST)
        self.assertEqual(self.handler.titles, [])
        self.feed.append(2)
        self.catch_up(Begin.NEWEST)
        self.assertEqual(self.handler.titles, titles(8, 7))

    def test_newest_of_nothing(self) -> None:
        self.catch_up(Begin.NEWEST)
        self.feed.append(5)
        self.catch_up(Begin.NEWEST)
        self.assertEqual(self.handler.titles, titles(5))


class OtherFeedsTests(FollowerCase):
    """Feeds that are not ours."""

    def serve(self, **documents: Any) -> None:
        self.client.instead.update(
            {f"http://a.example/{name}": found for name, found in documents.items()}
        )

    def test_archive_without_next_and_via(self) -> None:
        """RFC 5005 demands neither."""
        self.serve(
            recent=feed_of(("c", 5), ("b", 4), prev_archive="2"),
            **{"2": feed_of(("b", 3), prev_archive="1"), "1": feed_of(("a", 2), ("z", 1))},
        )
        self.catch_up()
        self.assertEqual(self.handler.titles, ["z1", "a2", "b3", "b4", "c5"])
        self.catch_up()
        self.assertEqual(len(self.handler.titles), 5)

    def test_entry_that_is_edited_and_comes_again(self) -> None:
        """The position is that of a version of the entry, not of a later one."""
        self.serve(recent=feed_of(("a", 1)))
        self.catch_up()
        self.serve(
            recent=feed_of(("a", 4), ("c", 3), prev_archive="1"),
            **{"1": feed_of(("b", 2), ("a", 1))},
        )
        self.catch_up()
        self.assertEqual(self.handler.titles, ["a1", "b2", "c3", "a4"])

    def test_entry_that_comes_again_in_a_later_archive(self) -> None:
        """Nothing that stands before it there is missed, whichever way leads to it."""
        self.serve(recent=feed_of(("a", 1)))
        self.catch_up()
        self.serve(
            recent=feed_of(("d", 5), prev_archive="2"),
            **{
                "2": feed_of(("a", 4), ("c", 3), prev_archive="1"),
                "1": feed_of(("b", 2), ("a", 1)),
            },
        )
        self.catch_up()
        self.assertEqual(self.handler.titles, ["a1", "b2", "c3", "a4", "d5"])

    def test_entry_that_comes_again_in_the_next_archive(self) -> None:
        self.marker.position = Position("a", 1356998400.0, "http://a.example/1")
        self.serve(
            recent=feed_of(("f", 7), prev_archive="3"),
            **{
                "3": feed_of(("e", 6), prev_archive="2"),
                "2": feed_of(("d", 5), ("a", 4), ("c", 3), prev_archive="1", next_archive="3"),
                "1": feed_of(("b", 2), ("a", 1), next_archive="2"),
            },
        )
        self.catch_up()
        self.assertEqual(self.handler.titles, ["b2", "c3", "a4", "d5", "e6", "f7"])

    def test_entry_that_was_edited_in_its_place(self) -> None:
        self.serve(recent=feed_of(("b", 2), ("a", 1)))
        self.catch_up()
        self.serve(
            recent=feed_of(("d", 5), prev_archive="1"),
            **{"1": feed_of(("c", 4), ("b", 3), ("a", 1))},
        )
        self.catch_up()
        self.assertEqual(self.handler.titles, ["a1", "b2", "c4", "d5"])

    def test_oldest_first(self) -> None:
        self.serve(
            recent=feed_of(("c", 3), ("d", 4), prev_archive="1"),
            **{"1": feed_of(("a", 1), ("b", 2))},
        )
        self.catch_up()
        self.assertEqual(self.handler.titles, ["a1", "b2", "c3", "d4"])

    def test_mixed_and_repeated_entries(self) -> None:
        self.serve(recent=feed_of(("d", 3), ("c", 4), ("b", 2), ("a", 1), ("b", 2)))
        self.catch_up()
        self.assertEqual(self.handler.titles, ["b2", "a1", "c4", "d3"])
        self.assertEqual(len(self.told), 2)
        self.assertIn("not in the order of their times", self.told[0])
        self.assertIn("has the entry b more than once", self.told[1])

    def test_circle(self) -> None:
        self.serve(
            recent=feed_of(("c", 3), prev_archive="2"),
            **{"2": feed_of(("b", 2), prev_archive="1"), "1": feed_of(("a", 1), prev_archive="2")},
        )
        self.assertIn("link in a circle: http://a.example/1 names", self.failure())
        self.assertEqual(len(self.client.asked), 3)
        self.serve(recent=feed_of(("c", 3), prev_archive="recent"))
        self.client.instead["http://a.example/recent"] = feed_of(
            ("c", 3), prev_archive="recent", self="recent"
        )
        self.assertIn("circle", self.failure())

    def test_circle_forward(self) -> None:
        self.serve(
            recent=feed_of(("z", 9), prev_archive="2"),
            **{"2": feed_of(("b", 2), next_archive="1"), "1": feed_of(("a", 1), next_archive="2")},
        )
        self.marker.position = Position("a", 1356998400.0, "http://a.example/1")
        self.assertIn(
            "http://a.example/2 names http://a.example/1 as the one after", self.failure()
        )

    def test_endless_documents(self) -> None:
        old = self.client.request

        async def endless(request: OutboundRequest) -> Any:
            await old(request)
            return feed_of(("a", 1), prev_archive=f"{len(self.client.asked)}")

        self.client.instead["http://a.example/recent"] = feed_of(("a", 1), prev_archive="0")
        self.patch(Client, "request", lambda _, request: endless(request))
        self.patch(self.feed, "get", lambda url: b"")
        self.assertIn("more than 50 documents", self.failure(documents=50))
        self.assertLess(len(self.client.asked), 60)

    def test_archived_document_that_changes(self) -> None:
        changing = "http://a.example/2"
        self.serve(
            recent=feed_of(("c", 3), prev_archive="2"),
            **{"2": feed_of(("b", 2), prev_archive="1"), "1": feed_of(("a", 1))},
        )
        self.handler.waits = Deferred()
        running = Deferred.fromCoroutine(self.follower().catch_up())
        self.assertEqual(self.client.asked.count(changing), 2)  # fetched ahead
        self.handler.waits.callback(None)
        self.successResultOf(running)
        self.assertEqual(self.told, [])
        self.marker.position = None
        self.client.asked.clear()
        old = self.client.request

        async def changed(request: OutboundRequest) -> Any:
            found = await old(request)
            if request.url == changing:
                self.client.instead[changing] = feed_of(("x", 2), ("b", 2), prev_archive="1")
            return found

        self.patch(Client, "request", lambda _, request: changed(request))
        self.catch_up()
        self.assertIn("http://a.example/2 has changed while it was followed", self.told[0])
        self.assertEqual(self.handler.titles, ["a1", "b2", "c3", "a1", "b2", "x2", "c3"])

    def test_documents_that_are_missing(self) -> None:
        self.serve(recent=feed_of(("c", 3), prev_archive="2"), **{"2": answer(b"", 410)})
        self.catch_up()
        self.assertEqual(self.handler.titles, ["c3"])
        self.assertIn("http://a.example/2 does not exist, although", self.told[0])

    def test_hub(self) -> None:
        follower = self.follower()
        self.serve(recent=feed_of(("c", 3), hub="http://h.example/", self="/me"))
        self.successResultOf(follower.catch_up())
        self.assertEqual(follower.hub, ("http://h.example/", "http://a.example/me"))
        linked = '<http://i.example/>; rel="hub", <http://a.example/you>; rel="self"'
        self.serve(recent=answer(ATOM.format("").encode(), link=linked))
        self.successResultOf(follower.catch_up())
        self.assertEqual(follower.hub, ("http://i.example/", "http://a.example/you"))
        self.serve(recent=answer(ATOM.format("").encode(), link="nonsense"))
        self.successResultOf(follower.catch_up())
        self.assertIsNone(follower.hub)


class GoneTests(FollowerCase):
    """The entry that was processed last is not in the feed any more."""

    def setUp(self) -> None:
        super().setUp()
        self.feed.append(8)
        self.marker.position = Position("urn:uuid:gone", 1.0, URLS.of(77))

    def test_somebody_must_choose(self) -> None:
        failure = self.failure()
        self.assertIn("urn:uuid:gone, is not in the feed any more", failure)
        self.assertIn("--from oldest", failure)
        self.assertIn("--from newest", failure)
        self.assertEqual(self.handler.titles, [])

    def test_oldest(self) -> None:
        self.catch_up(Begin.OLDEST)
        self.assertEqual(self.handler.titles, titles(8))
        self.assertIn("Beginning with the oldest entry", self.told[0])

    def test_old_copy_of_the_recent_document(self) -> None:
        """A cache may have one.  That does not mean that entries are gone."""
        self.marker.position = None
        old = self.feed.get(URLS.recent)
        assert old is not None
        self.feed.append(2)
        self.catch_up()
        self.client.instead[URLS.recent] = answer(old)
        self.catch_up()
        self.assertIn("older than the entry that was processed last", self.told[0])
        del self.client.instead[URLS.recent]
        self.feed.append(1)
        self.catch_up()
        self.assertEqual(self.handler.titles, titles(11))

    def test_broken_chain(self) -> None:
        self.marker.position = None
        self.catch_up()
        position = self.marker.position
        assert position is not None
        self.client.instead[URLS.recent] = feed_of(("new", 5))
        self.assertIn("does not lead to http://a.example/documents/3", self.failure())
        self.assertEqual(self.marker.position, position)


class FailureTests(FollowerCase):
    def test_what_servers_answer(self) -> None:
        for instead, reason in (
            (UNREACHABLE, "cannot be read: connection refused"),
            (TOO_LARGE, "is too large to be read"),
            (answer(b"", 500), "the server answers 500"),
            (answer(b"", 304), "the server answers 304"),
            (answer(b"", 404), "does not exist: the server answers 404"),
            (answer(b"<html/>"), "cannot be followed: it is not an Atom feed"),
            (answer(b"x" * 100_000), "it is not XML"),
        ):
            self.client.instead[URLS.recent] = instead
            self.assertIn(reason, self.failure())

    def test_once_tries_again(self) -> None:
        self.feed.append(4)
        self.client.instead[URLS.of(1)] = UNREACHABLE
        running = Deferred.fromCoroutine(self.follower(retry=2.0).catch_up())
        self.assertIn("connection refused. Trying again in 2 s.", self.told[0])
        del self.client.instead[URLS.of(1)]
        self.clock.advance(2)
        self.successResultOf(running)
        self.assertEqual(self.handler.titles, titles(4))

    def test_once_gives_up(self) -> None:
        self.client.instead[URLS.recent] = UNREACHABLE
        running = Deferred.fromCoroutine(self.follower(retry=2.0, tries=3).catch_up())
        self.clock.pump([2.0, 4.0])
        self.failureResultOf(running, FeedUnavailable)
        self.assertEqual(len(self.client.asked), 3)

    def test_once_does_not_wait_for_long(self) -> None:
        self.client.instead[URLS.recent] = answer(b"", 503, retry_after="3600")
        running = Deferred.fromCoroutine(self.follower().catch_up())
        self.failureResultOf(running, FeedUnavailable)

    def test_entry_that_fails_for_a_while(self) -> None:
        self.feed.append(5)
        self.handler.failures = 3
        running = Deferred.fromCoroutine(self.follower().catch_up())
        self.clock.pump([1.0, 2.0, 4.0])
        self.successResultOf(running)
        self.assertEqual(self.handler.titles, titles(5))
        self.assertIn("was not processed: the disk is full. Trying again in 1 s.", self.told[0])

    def test_entry_that_fails_always(self) -> None:
        self.feed.append(5)
        self.catch_up()
        position = self.marker.position
        self.feed.append(1)
        self.handler.failures = 3
        running = Deferred.fromCoroutine(self.follower(tries=3).catch_up())
        self.clock.pump([1.0, 2.0])
        failure = self.failureResultOf(running, FollowError)
        self.assertIn("Gave up after 3 attempts", str(failure.value))
        self.assertEqual(self.marker.position, position)
        self.catch_up()
        self.assertEqual(self.handler.titles, titles(6))

    def test_marker_that_cannot_be_written(self) -> None:
        async def save(position: Position) -> None:
            raise OSError("No space left on device")

        self.feed.append(1)
        self.patch(self.marker, "save", save)
        self.assertIn("the marker cannot be written: No space left", self.failure())


class RunTests(FollowerCase):
    def test_polls_as_the_server_says(self) -> None:
        cases: tuple[tuple[dict[str, Any], int], ...] = (
            ({"cache_control": "max-age=30"}, 30),
            ({"cache_control": "max-age=0"}, 5),
            ({"cache_control": "max-age=99999"}, 3600),
            ({}, 60),
        )
        for said, pause in cases:
            self.feed.append(1)
            body = self.feed.get(URLS.recent)
            assert body is not None
            self.client.instead[URLS.recent] = answer(body, **said)
            follower, running = self.start()
            asked = len(self.client.asked)
            self.clock.advance(pause - 1)
            self.assertEqual(len(self.client.asked), asked, said)
            self.clock.advance(2)
            self.assertGreater(len(self.client.asked), asked, said)
            self.successResultOf(follower.stop())
            self.successResultOf(running)

    def test_conditional_requests(self) -> None:
        self.feed.append(4)
        body = self.feed.get(URLS.recent)
        assert body is not None
        day = "Wed, 02 Jan 2013 10:03:00 GMT"
        self.client.instead[URLS.recent] = answer(body, etag='"4"', last_modified=day)
        self.start()
        self.client.instead[URLS.recent] = answer(b"", 304)
        self.clock.advance(61)
        self.assertEqual(self.client.headers["if-none-match"], '"4"')
        self.assertEqual(self.client.headers["if-modified-since"], day)
        del self.client.instead[URLS.recent]
        self.feed.append(1)
        self.clock.advance(61)
        self.assertEqual(self.handler.titles, titles(5))

    def test_validators_that_cannot_be_sent_back(self) -> None:
        self.feed.append(4)
        body = self.feed.get(URLS.recent)
        assert body is not None
        self.client.instead[URLS.recent] = answer(body, etag='"\xa0"')
        self.start()
        self.clock.advance(61)
        self.assertEqual(self.client.asked[-1], URLS.recent)
        self.assertNotIn("if-none-match", {name.lower() for name in self.client.headers})

    def test_nothing_is_lost_by_conditions_if_a_round_fails(self) -> None:
        self.feed.append(4)
        body = self.feed.get(URLS.recent)
        assert body is not None
        self.client.instead[URLS.recent] = answer(body, etag='"4"')
        self.client.instead[URLS.of(1)] = UNREACHABLE
        self.start()
        del self.client.instead[URLS.of(1)]
        self.clock.advance(2)
        self.assertEqual(self.handler.titles, titles(4))

    def test_hints(self) -> None:
        follower, _ = self.start()
        self.feed.append(1)
        follower.hint()
        self.assertEqual(self.handler.titles, ["1"])
        self.handler.waits = Deferred()
        self.feed.append(1)
        follower.hint()
        self.feed.append(1)
        follower.hint()  # it comes while a round runs
        self.handler.waits.callback(None)
        self.assertEqual(self.handler.titles, titles(3))

    def test_backs_off(self) -> None:
        self.client.instead[URLS.recent] = UNREACHABLE
        follower, _ = self.start()
        for pause in (1, 2, 4, 8):
            asked = len(self.client.asked)
            self.clock.advance(pause - 0.5)
            follower.hint()
            self.assertEqual(len(self.client.asked), asked)
            self.clock.advance(0.6)
            self.assertEqual(len(self.client.asked), asked + 1)

    def test_retry_after(self) -> None:
        in_100 = "Sun, 09 Sep 2001 01:48:20 GMT"
        for text, pause in (("100", 100), (in_100, 100), ("9999999999", LONGEST_REST), ("x", 1)):
            self.clock = Clock()
            self.client.instead[URLS.recent] = answer(b"", 503, retry_after=text)
            follower, _ = self.start()
            asked = len(self.client.asked)
            self.clock.advance(pause * 0.99 - 0.5)
            self.assertEqual(len(self.client.asked), asked, text)
            self.clock.advance(pause * 0.01 + 1)
            self.assertEqual(len(self.client.asked), asked + 1, text)
            follower.stop()

    def test_stops_while_it_waits(self) -> None:
        follower, running = self.start()
        self.successResultOf(follower.stop())
        self.successResultOf(running)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.successResultOf(follower.stop())

    def test_stops_while_it_reads(self) -> None:
        self.client.instead[URLS.recent] = Deferred()
        follower, running = self.start()
        self.successResultOf(follower.stop())
        self.successResultOf(running)

    def test_stops_after_the_present_entry(self) -> None:
        self.feed.append(5)
        self.handler.waits = Deferred()
        follower, running = self.start()
        stopped = follower.stop()
        self.assertNoResult(stopped)
        self.handler.waits.callback(None)
        self.successResultOf(stopped)
        self.successResultOf(running)
        self.assertEqual(self.handler.titles, ["1"])
        self.catch_up()
        self.assertEqual(self.handler.titles, titles(5))

    def test_stops_between_attempts(self) -> None:
        self.feed.append(1)
        self.handler.failures = 9
        follower, running = self.start()
        self.successResultOf(follower.stop())
        self.successResultOf(running)
        self.assertIsNone(self.marker.position)

    def test_bug_ends_it(self) -> None:
        self.feed.append(1)
        self.patch(Collector, "handle", lambda *arguments: 1 / 0)
        _, running = self.start()
        self.failureResultOf(running, ZeroDivisionError)
