"""A follower processes each entry once at least and in order, whatever the feed does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import OutboundError, TooLarge
from rsscloud_broker.interfaces import OutboundReply, OutboundRequest, Position, parse_directly
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.errors import FeedUnavailable, FollowError
from rsscloud_broker.simplefeed.follower import Begin, Follower
from rsscloud_broker.simplefeed.markers import MemoryMarker
from rsscloud_broker.simplefeed.waiting import LONGEST_REST, FollowerLimits
from rsscloud_broker.testing import Clock, FakeOutbound, reply
from tests.simplefeed.logs import URLS, Collector, Feed, in_memory, titles

LINK = '<link rel="{}" href="{}"/>'
ATOM = '<feed xmlns="http://www.w3.org/2005/Atom">{}</feed>'
UNREACHABLE = OutboundError("connection refused")

#: The position of the entry ``a1`` in the document ``1``.
FIRST = Position("a", 1356998400.0, "http://a.example/1")


def feed_of(*entries: str, **links: str) -> OutboundReply:
    """The answer with a document of entries, such as ``a1``: with an id, and the day of it."""
    inside = "".join(LINK.format(rel.replace("_", "-"), url) for rel, url in links.items())
    for entry in entries:
        inside += (
            f"<entry><id>{entry[0]}</id><title>{entry}</title>"
            f"<updated>2013-01-{int(entry[1:]):02}T00:00:00Z</updated></entry>"
        )
    return reply(200, ATOM.format(inside).encode())


def chain(*documents: str) -> dict[str, OutboundReply]:
    """Documents by their names, the recent one first, each with the link to the one before it."""
    names = ["recent", *map(str, range(len(documents) - 1, 0, -1))]
    found: dict[str, OutboundReply] = {}
    for name, entries, older in zip(names, documents, [*names[1:], ""], strict=True):
        links = {"prev_archive": older} if older else {}
        found[name] = feed_of(*entries.split(), **links)
    return found


class FollowerCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.feed = Feed(self.enterContext(in_memory()))
        self.outbound = FakeOutbound(otherwise=self.feed.answer)
        self.handler = Collector()
        self.marker = MemoryMarker()
        self.clock = Clock()
        self.told: list[str] = []

    def serve(self, documents: dict[str, Any]) -> None:
        """Answer at the URLs of documents with others than those of the feed."""
        for name, found in documents.items():
            self.outbound.answers[f"http://a.example/{name}"] = found

    @property
    def asked(self) -> list[str]:
        """The URLs that were requested."""
        return [request.url for request in self.outbound.requests]

    def follower(self, begin: Begin | None = None, **limits: Any) -> Follower:
        return Follower(
            self.outbound,
            URLS.recent,
            self.handler,
            self.marker,
            self.clock,
            parse=parse_directly,
            begin=begin,
            tell=self.told.append,
            limits=FollowerLimits(**limits),
        )

    def catching_up(self, begin: Begin | None = None, **limits: Any) -> Deferred[None]:
        """Start a follower, as after a crash, which processes what there is."""
        return Deferred.fromCoroutine(self.follower(begin, **limits).catch_up())

    def catch_up(self, begin: Begin | None = None, **limits: Any) -> None:
        self.successResultOf(self.catching_up(begin, **limits))

    def failure(self, begin: Begin | None = None, **limits: Any) -> str:
        running = self.catching_up(begin, **{"tries": 1} | limits)
        return str(self.failureResultOf(running, FollowError).value)

    def start(self, **limits: Any) -> tuple[Follower, Deferred[None]]:
        follower = self.follower(**limits)
        running = Deferred.fromCoroutine(follower.run())
        self.addCleanup(running.addErrback, lambda failure: None)
        self.addCleanup(follower.stop)
        return follower, running

    def position(self) -> Position:
        """The position that was saved last."""
        position = self.marker.position
        assert position is not None
        return position


class CatchUpTests(FollowerCase):
    def test_every_length_at_every_beginning(self) -> None:
        """However much comes in between, the follower goes on where it stopped."""
        for more in (0, 1, 2, 3, 4, 7, 10, 1):
            self.feed.append(more)
            self.catch_up()
            self.assertEqual(self.handler.titles, titles(len(self.handler.titles)))
        self.assertEqual((len(self.handler.titles), self.told), (28, []))
        self.assertEqual(self.position().document, URLS.of(10))

    def test_goes_back_no_further_than_needed(self) -> None:
        self.feed.append(30)
        self.catch_up()
        self.feed.append(1)
        self.outbound.requests.clear()
        self.catch_up()
        self.assertNotIn(URLS.of(8), self.asked)
        self.assertLess(len(self.asked), 6)

    def test_goes_back_without_the_url_of_the_document(self) -> None:
        self.feed.append(5)
        self.catch_up()
        for document in ("", URLS.of(99), URLS.of(1)):
            position = self.position()
            self.marker.position = Position(position.entry, position.updated, document)
            self.handler.titles.clear()
            self.feed.append(6)
            self.catch_up()
            self.assertEqual(len(self.handler.titles), 6)
            self.assertEqual(self.told, [])

    def test_recent_document_that_grows_meanwhile(self) -> None:
        """Documents are archived while the follower reads: nothing is missed or out of order."""
        self.feed.append(7)
        more = iter([1, 5, 2, 9, 0, 0])

        def growing(request: OutboundRequest) -> OutboundReply:
            found = self.feed.answer(request)
            self.feed.append(next(more, 0))
            return found

        self.outbound.otherwise = growing
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
        self.assertEqual(saved, ["", URLS.of(1), URLS.of(2)])

    def test_newest(self) -> None:
        for first in (6, 0):  # also of a feed without entries
            self.setUp()
            self.feed.append(first)
            self.catch_up(Begin.NEWEST)
            self.assertEqual(self.handler.titles, [])
            self.feed.append(5)
            self.catch_up(Begin.NEWEST)
            self.assertEqual(self.handler.titles, titles(first + 5, first + 1))


class OtherFeedsTests(FollowerCase):
    """Feeds that are not ours."""

    def test_ways_through_archives(self) -> None:
        """None of them links forward, which RFC 5005 does not demand."""
        for name, before, after, expected in (
            ("an entry with a newer version", "", chain("c5 b4", "b3", "a2 z1"), "z1 a2 b3 b4 c5"),
            # The position is that of a version of an entry, and nothing that stands before the
            # other version is missed.
            ("one that comes again", "a1", chain("a4 c3", "b2 a1"), "a1 b2 c3 a4"),
            ("in a later archive", "a1", chain("d5", "a4 c3", "b2 a1"), "a1 b2 c3 a4 d5"),
            ("one that is edited in its place", "b2 a1", chain("d5", "c4 b3 a1"), "a1 b2 c4 d5"),
            ("oldest first", "", chain("c3 d4", "a1 b2"), "a1 b2 c3 d4"),
        ):
            self.setUp()
            if before:
                self.serve(chain(before))
                self.catch_up()
            self.serve(after)
            for _ in range(2):
                self.catch_up()
                self.assertEqual(self.handler.titles, expected.split(), name)

    def test_entry_that_comes_again_in_the_next_archive(self) -> None:
        self.marker.position = FIRST
        forward = {
            "2": feed_of("d5", "a4", "c3", prev_archive="1", next_archive="3"),
            "1": feed_of("b2", "a1", next_archive="2"),
        }
        self.serve(chain("f7", "e6", "", "") | forward)
        self.catch_up()
        self.assertEqual(self.handler.titles, ["b2", "c3", "a4", "d5", "e6", "f7"])

    def test_mixed_and_repeated_entries(self) -> None:
        self.serve(chain("d3 c4 b2 a1 b2"))
        self.catch_up()
        self.assertEqual(self.handler.titles, ["b2", "a1", "c4", "d3"])
        self.assertEqual(len(self.told), 2)
        self.assertIn("not in the order of their times", self.told[0])
        self.assertIn("has the entry b more than once", self.told[1])

    def test_circles(self) -> None:
        self.serve(chain("c3", "b2", "a1") | {"1": feed_of("a1", prev_archive="2")})
        self.assertIn("link in a circle: http://a.example/1 names", self.failure())
        self.assertEqual(len(self.asked), 3)
        self.serve({"recent": feed_of("c3", prev_archive="recent", self="recent")})
        self.assertIn("circle", self.failure())
        self.serve(
            {
                "recent": feed_of("z9", prev_archive="2"),
                "2": feed_of("b2", next_archive="1"),
                "1": feed_of("a1", next_archive="2"),
            }
        )
        self.marker.position = FIRST
        said = "http://a.example/2 names http://a.example/1 as the one after"
        self.assertIn(said, self.failure())

    def test_endless_documents(self) -> None:
        self.outbound.otherwise = lambda request: feed_of("a1", prev_archive=f"{len(self.asked)}")
        self.assertIn("more than 50 documents", self.failure(documents=50))
        self.assertLess(len(self.asked), 60)

    def test_archived_document_that_changes(self) -> None:
        self.serve(chain("c3", "b2", "a1"))
        self.handler.waits = Deferred()
        running = self.catching_up()
        self.assertEqual(self.asked.count("http://a.example/2"), 2)  # fetched ahead
        self.handler.waits.callback(None)
        self.successResultOf(running)
        self.assertEqual(self.told, [])
        self.marker.position = None
        answers = iter((feed_of("b2", prev_archive="1"), feed_of("x2", "b2", prev_archive="1")))
        self.serve({"2": lambda request: next(answers)})
        self.catch_up()
        self.assertIn("http://a.example/2 has changed while it was followed", self.told[0])
        self.assertEqual(self.handler.titles, ["a1", "b2", "c3", "a1", "b2", "x2", "c3"])

    def test_documents_that_are_missing(self) -> None:
        self.serve(chain("c3", "") | {"1": reply(410)})
        self.catch_up()
        self.assertEqual(self.handler.titles, ["c3"])
        self.assertIn("http://a.example/1 does not exist, although", self.told[0])

    def test_hub(self) -> None:
        follower = self.follower()
        linked = '<http://i.example/>; rel="hub", <http://a.example/you>; rel="self"'
        empty = ATOM.format("").encode()
        for answer, hub in (
            (
                feed_of("c3", hub="http://h.example/", self="/me"),
                ("http://h.example/", "http://a.example/me"),
            ),
            (reply(200, empty, link=linked), ("http://i.example/", "http://a.example/you")),
            (reply(200, empty, link="nonsense"), None),
        ):
            self.serve({"recent": answer})
            self.successResultOf(follower.catch_up())
            self.assertEqual(follower.hub, hub)


class GoneTests(FollowerCase):
    """The entry that was processed last is not in the feed any more."""

    def setUp(self) -> None:
        super().setUp()
        self.feed.append(8)
        self.marker.position = Position("urn:uuid:gone", 1.0, URLS.of(77))

    def test_somebody_must_choose(self) -> None:
        failure = self.failure()
        for part in (
            "urn:uuid:gone, is not in the feed any more",
            "--from oldest",
            "--from newest",
        ):
            self.assertIn(part, failure)
        self.assertEqual(self.handler.titles, [])
        self.catch_up(Begin.OLDEST)
        self.assertEqual(self.handler.titles, titles(8))
        self.assertIn("Beginning with the oldest entry", self.told[0])

    def test_old_copy_of_the_recent_document(self) -> None:
        """A cache may have one.  That does not mean that entries are gone."""
        self.marker.position = None
        old = self.feed.recent()
        self.feed.append(2)
        self.catch_up()
        self.serve({"recent": reply(200, old)})
        self.catch_up()
        self.assertIn("older than the entry that was processed last", self.told[0])
        self.outbound.answers.clear()
        self.feed.append(1)
        self.catch_up()
        self.assertEqual(self.handler.titles, titles(11))

    def test_broken_chain(self) -> None:
        self.marker.position = None
        self.catch_up()
        position = self.position()
        self.serve({"recent": feed_of("n5")})
        self.assertIn("does not lead to http://a.example/documents/3", self.failure())
        self.assertEqual(self.marker.position, position)


class FailureTests(FollowerCase):
    def test_what_servers_answer(self) -> None:
        for answer, reason in (
            (UNREACHABLE, "cannot be read: connection refused"),
            (TooLarge("the answer has more than 10485760 bytes"), "is too large to be read"),
            (reply(500), "the server answers 500"),
            (reply(304), "the server answers 304"),
            (reply(404), "does not exist: the server answers 404"),
            (reply(200, b"<html/>"), "cannot be followed: it is not an Atom feed"),
            (reply(200, b"x" * 100_000), "it is not XML"),
        ):
            self.serve({"recent": answer})
            self.assertIn(reason, self.failure())

    def test_once_tries_again(self) -> None:
        self.feed.append(4)
        self.outbound.answers[URLS.of(1)] = UNREACHABLE
        running = self.catching_up(retry=2.0)
        self.assertIn("connection refused. Trying again in 2 s.", self.told[0])
        self.outbound.answers.clear()
        self.clock.advance(2)
        self.successResultOf(running)
        self.assertEqual(self.handler.titles, titles(4))

    def test_once_gives_up(self) -> None:
        self.serve({"recent": UNREACHABLE})
        running = self.catching_up(retry=2.0, tries=3)
        self.clock.pump([2.0, 4.0])
        self.failureResultOf(running, FeedUnavailable)
        self.assertEqual(len(self.asked), 3)

    def test_once_does_not_wait_for_long(self) -> None:
        self.serve({"recent": reply(503, retry_after="3600")})
        self.failureResultOf(self.catching_up(), FeedUnavailable)

    def test_entry_that_fails_for_a_while(self) -> None:
        self.feed.append(5)
        self.handler.failures = 3
        running = self.catching_up()
        self.clock.pump([1.0, 2.0, 4.0])
        self.successResultOf(running)
        self.assertEqual(self.handler.titles, titles(5))
        self.assertIn("was not processed: the disk is full. Trying again in 1 s.", self.told[0])

    def test_entry_that_fails_always(self) -> None:
        self.feed.append(5)
        self.catch_up()
        position = self.position()
        self.feed.append(1)
        self.handler.failures = 3
        running = self.catching_up(tries=3)
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
    def stop(self, follower: Follower, running: Deferred[None]) -> None:
        self.successResultOf(follower.stop())
        self.successResultOf(running)

    def test_polls_as_the_server_says(self) -> None:
        cases: tuple[tuple[dict[str, Any], int], ...] = (
            ({"cache_control": "max-age=30"}, 30),
            ({"cache_control": "max-age=0"}, 5),
            ({"cache_control": "max-age=99999"}, 3600),
            ({}, 60),
        )
        for said, pause in cases:
            self.feed.append(1)
            self.serve({"recent": reply(200, self.feed.recent(), **said)})
            follower, running = self.start()
            asked = len(self.asked)
            self.clock.advance(pause - 1)
            self.assertEqual(len(self.asked), asked, said)
            self.clock.advance(2)
            self.assertGreater(len(self.asked), asked, said)
            self.stop(follower, running)

    def test_conditional_requests(self) -> None:
        self.feed.append(4)
        day = "Wed, 02 Jan 2013 10:03:00 GMT"
        sent = {"if-none-match": '"4"', "if-modified-since": day}
        self.serve({"recent": reply(200, self.feed.recent(), etag='"4"', last_modified=day)})
        self.start()
        self.serve({"recent": reply(304)})
        self.clock.advance(61)
        self.assertLessEqual(sent.items(), self.outbound.requests[-1].headers.items())
        self.outbound.answers.clear()
        self.feed.append(1)
        self.clock.advance(61)
        self.assertEqual(self.handler.titles, titles(5))

    def test_validators_that_cannot_be_sent_back(self) -> None:
        self.feed.append(4)
        self.serve({"recent": reply(200, self.feed.recent(), etag='"\xa0"')})
        self.start()
        self.clock.advance(61)
        self.assertEqual(self.asked[-1], URLS.recent)
        headers = {name.lower() for name in self.outbound.requests[-1].headers}
        self.assertNotIn("if-none-match", headers)

    def test_nothing_is_lost_by_conditions_if_a_round_fails(self) -> None:
        self.feed.append(4)
        self.serve({"recent": reply(200, self.feed.recent(), etag='"4"')})
        self.outbound.answers[URLS.of(1)] = UNREACHABLE
        self.start()
        del self.outbound.answers[URLS.of(1)]
        self.clock.advance(2)
        self.assertEqual(self.handler.titles, titles(4))

    def test_hints(self) -> None:
        follower, _ = self.start()
        self.feed.append(1)
        follower.hint()
        self.assertEqual(self.handler.titles, ["1"])
        self.handler.waits = Deferred()
        for _ in range(2):  # the second one comes while a round runs
            self.feed.append(1)
            follower.hint()
        self.handler.waits.callback(None)
        self.assertEqual(self.handler.titles, titles(3))

    def test_backs_off(self) -> None:
        self.serve({"recent": UNREACHABLE})
        follower, _ = self.start()
        for pause in (1, 2, 4, 8):
            asked = len(self.asked)
            self.clock.advance(pause - 0.5)
            follower.hint()
            self.assertEqual(len(self.asked), asked)
            self.clock.advance(0.6)
            self.assertEqual(len(self.asked), asked + 1)

    def test_retry_after(self) -> None:
        in_100 = "Sun, 09 Sep 2001 01:48:20 GMT"
        for text, pause in (("100", 100), (in_100, 100), ("9999999999", LONGEST_REST), ("x", 1)):
            self.clock = Clock()
            self.serve({"recent": reply(503, retry_after=text)})
            follower, _ = self.start()
            asked = len(self.asked)
            self.clock.advance(pause * 0.99 - 0.5)
            self.assertEqual(len(self.asked), asked, text)
            self.clock.advance(pause * 0.01 + 1)
            self.assertEqual(len(self.asked), asked + 1, text)
            follower.stop()

    def test_stops_while_it_waits(self) -> None:
        follower, running = self.start()
        self.stop(follower, running)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.successResultOf(follower.stop())

    def test_stops_while_it_reads(self) -> None:
        self.serve({"recent": Deferred()})
        self.stop(*self.start())

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
        self.stop(*self.start())
        self.assertIsNone(self.marker.position)

    def test_bug_ends_it(self) -> None:
        self.feed.append(1)
        self.patch(Collector, "handle", lambda *arguments: 1 / 0)
        _, running = self.start()
        self.failureResultOf(running, ZeroDivisionError)
