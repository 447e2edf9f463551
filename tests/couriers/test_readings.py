"""Tests that couriers read topics: real processes, which fetch from real servers on loopback."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from rsscloud_broker.admin_records import Block
from rsscloud_broker.couriers.courier import Courier
from rsscloud_broker.couriers.crew import Crew
from rsscloud_broker.couriers.fetching import CourierFetcher
from rsscloud_broker.couriers.further import STAYS
from rsscloud_broker.couriers.link import BESIDES
from rsscloud_broker.couriers.messages import Setup, TopicRules
from rsscloud_broker.couriers.spawning import COMMAND
from rsscloud_broker.couriers.suspects import PAUSE
from rsscloud_broker.errors import TopicEnded, TopicUnreadable, Unavailable
from rsscloud_broker.model import NO_VALIDATORS, Content, Need, Validators
from rsscloud_broker.outbound import AnswerBudget
from rsscloud_broker.outbound.budget import NO_MEMORY
from rsscloud_broker.readings import EVERYTHING, Fetched, Wanted
from rsscloud_broker.testing import Clock
from tests.couriers.crashing import HANGING, PARSING, READING
from tests.outbound.servers import Pages, half, page, serve, silence

_reactor: Any = reactor

RSS = b"<rss version='2.0'><channel><title>One</title></channel></rss>"
LIMIT = 1024 * 1024
TYPE = {"content-type": "text/xml"}
DIGEST, SIZE = Content(RSS).digest, len(RSS)


class ReadingTestCase(TestCase):
    """A crew of one courier, and a server.

    :cvar command: what the courier runs.
    """

    timeout = 120
    command: Sequence[str] = COMMAND

    def setUp(self) -> None:
        self.clock = Clock()
        self.pages = Pages({"/feed": page(200, RSS, **TYPE)})
        self.port = serve(self, self.pages)
        setup = Setup("tests/1.0", [], [("127.0.0.1", 5337)], 15.0, 65_536)
        rules = TopicRules("tests/1.0", "http://b.example", 30.0, LIMIT, ["127.0.0.0/8"])
        self.crew = Crew(_reactor, self.clock, 1, setup, [], rules, self.command)
        self.crew.startService()
        self.addCleanup(lambda: self.crew.running and self.crew.stopService())
        self.budget = AnswerBudget.of_topics(LIMIT, _reactor.callFromThread)
        self.fetcher = CourierFetcher(self.crew, self.clock, self.budget)

    def url(self, path: str = "/feed", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def fetch(
        self,
        path: str = "/feed",
        known: Validators = NO_VALIDATORS,
        wanted: Wanted = EVERYTHING,
        subscribers: int = 0,
    ) -> Deferred[Fetched]:
        return Deferred.fromCoroutine(
            self.fetcher.fetch(self.url(path), known, subscribers, wanted)
        )

    async def refused(self, path: str) -> TopicUnreadable:
        error = await self.assertFailure(self.fetch(path), TopicUnreadable)
        assert isinstance(error, TopicUnreadable)
        return error


async def said(fetched: Fetched) -> Mapping[str, Any] | None:
    """What the feed says."""
    facts: Awaitable[Mapping[str, Any] | None] | None = fetched.facts
    assert facts is not None
    return await facts


class WantedTests(ReadingTestCase):
    async def test_content_that_is_wanted(self) -> None:
        fetched = await self.fetch(subscribers=7)
        self.assertEqual(fetched.content, Content(RSS, "text/xml"))
        self.assertEqual((fetched.digest, fetched.size), (DIGEST, SIZE))
        self.assertEqual(fetched.result, f"200, {SIZE} bytes")
        self.assertEqual((await said(fetched) or {})["title"], "One")
        (agent,) = self.pages.seen[0].headers.getRawHeaders("user-agent", [])
        self.assertEqual(agent, "tests/1.0 (+http://b.example; 7 subscribers)")

    async def test_content_that_nobody_needs(self) -> None:
        """Its digest and what it says come all the same."""
        fetched = await self.fetch(wanted=Wanted(Need.FACTS, b"1" * 32, 1))
        self.assertEqual((fetched.content, fetched.digest, fetched.size), (None, DIGEST, SIZE))
        self.assertEqual((await said(fetched) or {})["format"], "rss 2.0")

    async def test_content_that_has_not_changed(self) -> None:
        """It does not cross, and is not parsed again."""
        fetched = await self.fetch(wanted=Wanted(Need.CHANGES, DIGEST, SIZE))
        self.assertEqual((fetched.content, fetched.digest), (None, DIGEST))
        self.assertIsNone(fetched.facts)

    async def test_content_that_has_changed(self) -> None:
        fetched = await self.fetch(wanted=Wanted(Need.CHANGES, b"1" * 32, SIZE))
        self.assertEqual(fetched.content, Content(RSS, "text/xml"))

    async def test_content_that_notifications_wait_for(self) -> None:
        fetched = await self.fetch(wanted=Wanted(Need.CONTENT, DIGEST, SIZE))
        self.assertEqual(fetched.content, Content(RSS, "text/xml"))

    async def test_validators(self) -> None:
        self.pages.answers["/new"] = page(200, RSS, etag='"é"', cache_control="no-store")
        self.pages.answers["/old"] = page(304)
        fetched = await self.fetch("/new")
        self.assertEqual((fetched.validators, fetched.fresh_seconds), (Validators('"Ã©"'), 0.0))
        fetched = await self.fetch("/old", fetched.validators, Wanted(Need.FACTS, DIGEST, SIZE))
        self.assertEqual((fetched.content, fetched.digest, fetched.facts), (None, None, None))
        self.assertEqual(fetched.validators, Validators('"Ã©"'))

    async def test_compressed_content(self) -> None:
        packed = gzip.compress(RSS)
        self.pages.answers["/feed"] = page(200, packed, **TYPE, content_encoding="gzip")
        fetched = await self.fetch()
        self.assertEqual((fetched.content, fetched.digest), (Content(RSS, "text/xml"), DIGEST))

    async def test_what_is_no_feed(self) -> None:
        self.pages.answers["/feed"] = page(200, b"hello")
        self.assertIn("unreadable", await said(await self.fetch()) or {})

    async def test_question_that_cannot_be_sent(self) -> None:
        """The topic cannot be read then, as by a fetcher without couriers."""
        with self.assertRaises(TopicUnreadable) as raised:
            await self.fetcher.fetch("http://127.0.0.1/\ud800")
        self.assertIn("the request is faulty", raised.exception.reason)

    async def test_text_that_is_not_unicode(self) -> None:
        """It cannot cross; the rest of the reading does."""
        body = b'{"version": "https://jsonfeed.org/version/1.1", "title": "\\ud800", "items": []}'
        self.pages.answers["/feed"] = page(200, body)
        fetched = await self.fetch()
        self.assertEqual(fetched.size, len(body))
        await said(fetched)

    async def test_own_content_is_counted_while_it_is_in_memory(self) -> None:
        self.pages.answers["/large"] = page(200, b"x" * LIMIT)
        fetched = await self.fetch("/large")
        self.assertEqual(self.budget.kept, LIMIT)
        del fetched
        self.budget.kept += 10**9
        error = await self.assertFailure(self.fetch("/large"), Unavailable)
        self.assertIn(NO_MEMORY, str(error))


class RuleTests(ReadingTestCase):
    async def test_moves_and_ends(self) -> None:
        self.pages.answers |= {
            "/moved": page(301, location=self.url()),
            "/gone": page(410),
            "/not": page(404),
            "/broken": page(503),
        }
        self.assertEqual((await self.fetch("/moved")).moved_to, self.url())
        self.assertIsInstance(await self.refused("/gone"), TopicEnded)
        self.assertTrue((await self.refused("/not")).lasting)
        self.assertFalse((await self.refused("/broken")).lasting)

    async def test_limit_of_a_content_changes(self) -> None:
        self.pages.answers["/large"] = page(200, b"x" * 2 * LIMIT)
        error = await self.refused("/large")
        self.assertTrue(error.refused)
        self.assertIn("too large to be read", error.reason)
        self.crew.read_by(TopicRules(body_limit=3 * LIMIT, allowed=["127.0.0.0/8"]))
        self.assertEqual((await self.fetch("/large")).size, 2 * LIMIT)

    async def test_content_of_the_largest_size(self) -> None:
        """Frames that a courier sends may have no more, and what was allowed earlier."""
        largest = 5 * LIMIT
        self.pages.answers["/large"] = page(200, b"x" * largest, **TYPE)
        self.crew.read_by(TopicRules(body_limit=largest, allowed=["127.0.0.0/8"]))
        (courier,) = self.crew.couriers
        self.assertEqual(courier._limits().frame, largest + BESIDES)
        readings = [self.fetch("/large") for _ in range(3)]
        for reading in readings:
            fetched = await reading
            self.assertEqual(fetched.content, Content(b"x" * largest, "text/xml"))
        self.crew.read_by(TopicRules(body_limit=LIMIT, allowed=["127.0.0.0/8"]))
        self.assertEqual(courier._limits().frame, largest + BESIDES)

    async def test_networks_are_those_of_topics(self) -> None:
        """Callbacks may call none beside public ones here."""
        await self.assertFailure(
            Deferred.fromCoroutine(self.crew.request("GET", self.url())), Exception
        )
        self.crew.read_by(TopicRules(body_limit=LIMIT, allowed=[]))
        self.assertTrue((await self.refused("/feed")).refused)

    async def test_blocked_topics_and_hosts(self) -> None:
        for block in (
            Block("topic", self.url(), "spam", "alice", 0.0),
            Block("host", "127.0.0.1", "spam", "alice", 0.0),
        ):
            self.crew.block([block, Block("source", "10.0.0.0/8", "spam", "alice", 0.0)])
            self.assertIn("blocked here: spam", (await self.refused("/feed")).reason)
        self.crew.block([])
        self.assertEqual((await self.fetch()).size, SIZE)

    async def test_cancelled(self) -> None:
        self.pages.answers["/slow"] = silence
        fetching = self.fetch("/slow")
        await self.pages.asked
        self.assertEqual((self.crew.readings, self.crew.under_way), (1, 0))
        fetching.addErrback(lambda _: None).cancel()
        self.assertEqual(self.crew.readings, 0)
        self.assertEqual((await self.fetch()).size, SIZE)

    async def test_stopped(self) -> None:
        self.pages.answers["/slow"] = silence
        fetching = self.fetch("/slow")
        await self.pages.asked
        await self.crew.stopService()
        await self.assertFailure(fetching, Unavailable)
        await self.assertFailure(self.fetch(), Unavailable)


def _memory() -> int:
    """The bytes of memory that this process uses."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


class BadInputTests(ReadingTestCase):
    async def test_this_process_does_not_notice(self) -> None:
        """Its memory stays as it is, and other readings go on."""
        bomb = zlib.compress(bytes(100 * LIMIT), 9)
        deep = b"<rss version='2.0'><channel>" + b"<item>" * 100_000
        wide = RSS.replace(b"</channel>", b"<item><guid>x</guid></item>" * 30_000 + b"</channel>")
        entities = b"<!DOCTYPE r [" + b"<!ENTITY a 'b'>" * 60_000 + b"]><rss/>"
        self.pages.answers |= {
            "/bomb": page(200, bomb, content_encoding="deflate"),
            "/deep": page(200, deep),
            "/wide": page(200, wide),
            "/entities": page(200, entities),
            "/garbage": page(200, bomb[: len(bomb) // 2], content_encoding="deflate"),
            "/endless": page(200, b"x" * (2 * LIMIT)),
        }
        bad = [path for path in self.pages.answers if path != "/feed"]
        self.pages.answers["/half"] = half
        dripping = [self.fetch(f"/half?{number}") for number in range(10)]
        await self.fetch()
        wanted, pid = Wanted(Need.FACTS), self.crew.couriers[0]._process.pid

        async def read_all() -> list[str]:
            fetching = [
                self.fetch(path, wanted=wanted).addCallbacks(_told, _refusal) for path in bad * 3
            ]
            for _ in range(10):
                self.assertEqual((await self.fetch()).size, SIZE)
            return [await each for each in fetching]

        await read_all()
        before = _memory()
        for _ in range(3):
            results = await read_all()
        self.assertLess(_memory() - before, 8 * LIMIT)
        self.assertEqual(self.budget.kept, 0)
        self.assertEqual(self.crew.couriers[0]._process.pid, pid)
        for path in ("/deep", "/wide", "/entities"):
            facts = await said(await self.fetch(path, wanted=wanted))
            self.assertIsNotNone(facts)
        self.assertIn("too large to be read", results[0])
        for each in dripping:
            each.addErrback(lambda _: None)
            each.cancel()


def _told(fetched: Fetched) -> str:
    return fetched.result


def _refusal(failure: Any) -> str:
    failure.trap(TopicUnreadable)
    return str(failure.value.reason)


class DeadlyTests(ReadingTestCase):
    """Some documents end the courier that reads them."""

    command = (*COMMAND[:-1], "tests.couriers.crashing")

    def setUp(self) -> None:
        super().setUp()
        self.pages.answers |= {
            "/deadly": page(200, b"<rss>" + READING),
            "/parsed": page(200, RSS + PARSING),
            "/slow": silence,
        }

    async def again(
        self, path: str, known: Validators = NO_VALIDATORS, wanted: Wanted = EVERYTHING
    ) -> Fetched:
        """Fetch a topic as often as it is put off, while the pauses pass."""
        while True:
            fetching = self.fetch(path, known, wanted)
            while not fetching.called:
                self.clock.advance(0.1)
                await deferLater(_reactor, 0.01)
            try:
                return await fetching
            except Unavailable:
                pass

    def further(self) -> list[Courier]:
        """The couriers that read suspects."""
        return self.crew._further

    async def test_guilty_one_is_found(self) -> None:
        """Those that were under way with it are read again, and it is not."""
        slow = self.fetch("/slow")
        await self.pages.asked
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        await self.assertFailure(slow, Unavailable)
        self.pages.answers["/slow"] = page(200, RSS)
        self.assertEqual((await self.again("/slow")).size, SIZE)
        with self.assertRaises(TopicUnreadable) as raised:
            await self.again("/deadly")
        reason = raised.exception.reason
        self.assertTrue(raised.exception.refused)
        self.assertIn("the processes that read it end while they do", reason)
        seen = len(self.pages.seen)
        self.assertEqual((await self.refused("/deadly")).reason, reason)
        self.assertEqual(len(self.pages.seen), seen, "its server is not called any more")

    async def test_one_courier_may_end_for_other_reasons(self) -> None:
        """Such as an operator who kills it."""
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        self.pages.answers["/deadly"], self.pages.asked = silence, Deferred()
        reading = self.fetch("/deadly")
        await self.pages.asked
        (further,) = self.further()
        further.kill()
        await self.assertFailure(reading, Unavailable)
        self.pages.answers["/deadly"] = page(200, RSS)
        self.assertEqual((await self.again("/deadly")).size, SIZE)

    async def test_innocent_ones_are_suspect_no_more(self) -> None:
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        self.pages.answers["/deadly"] = page(200, RSS)
        self.assertEqual((await self.again("/deadly")).size, SIZE)
        self.assertNotIn(self.url("/deadly"), self.fetcher._suspects)

    async def test_topic_that_is_to_blame_is_read_again_after_a_pause(self) -> None:
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        with self.assertRaises(TopicUnreadable):
            await self.again("/deadly")
        self.pages.answers["/deadly"] = page(200, RSS)
        self.clock.advance(PAUSE - 60)
        await self.refused("/deadly")
        self.clock.advance(61)
        self.assertEqual((await self.again("/deadly")).size, SIZE)

    async def test_other_topics_of_its_host_are_read_alone(self) -> None:
        """So the next deadly document does not end the courier that has other work."""
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        with self.assertRaises(TopicUnreadable):
            await self.again("/deadly")
        while self.crew.couriers[0]._link is None:
            self.clock.advance(1)
            await deferLater(_reactor, 0.01)
        pid = self.crew.couriers[0]._process.pid
        self.pages.answers["/another"] = page(200, READING)
        with self.assertRaises(TopicUnreadable):
            await self.again("/another")
        self.assertEqual(self.crew.couriers[0]._process.pid, pid)
        self.assertEqual((await self.again("/feed")).size, SIZE)

    async def test_document_that_is_deadly_to_parse(self) -> None:
        """It has been read by then; what it says never comes, and its topic is suspect."""
        fetched = await self.fetch("/parsed")
        self.assertEqual(fetched.size, len(RSS + PARSING))
        self.assertIsNone(await said(fetched))
        with self.assertRaises(TopicUnreadable):
            await self.again("/parsed")

    async def test_document_whose_parsing_never_ends(self) -> None:
        """The courier gives signs of life meanwhile, and ends all the same."""
        self.pages.answers["/endless"] = page(200, RSS + HANGING)
        self.assertIsNone(await said(await self.fetch("/endless")))
        with self.assertRaises(TopicUnreadable):
            await self.again("/endless")

    async def test_deadly_document_that_is_known_by_now(self) -> None:
        """Its digest and validators are stored, but it is parsed all the same."""

        def tagged(request: Any) -> bytes:
            return b"" if request.setETag(b'"1"') else RSS + PARSING

        self.pages.answers["/parsed"] = tagged
        fetched = await self.fetch("/parsed", wanted=Wanted(Need.FACTS))
        self.assertIsNone(await said(fetched))
        with self.assertRaises(TopicUnreadable):
            await self.again(
                "/parsed", fetched.validators, Wanted(Need.FACTS, fetched.digest, fetched.size)
            )

    async def test_last_words_of_a_crash(self) -> None:
        """The log says where in the program it was."""
        with capturedLogs() as events:
            await self.assertFailure(self.fetch("/deadly"), Unavailable)
        lines = [str(formatEvent(event)) for event in events]
        (first,) = [line for line in lines if "Fatal Python error: Aborted" in line]
        (place,) = [line for line in lines if "crashing.py" in line and "_redirect" in line]
        self.assertLess(lines.index(first), lines.index(place))

    async def test_suspect_that_cannot_be_read_stays_one(self) -> None:
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        self.pages.answers["/deadly"] = page(503)
        with self.assertRaises(TopicUnreadable):
            await self.again("/deadly")
        self.assertIn(self.url("/deadly"), self.fetcher._suspects)

    async def test_summary_of_a_suspect_that_has_not_changed(self) -> None:
        """It was lost with the courier, so it comes again."""
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        self.pages.answers["/deadly"] = page(200, RSS)
        fetched = await self.again("/deadly", wanted=Wanted(Need.FACTS, DIGEST, SIZE))
        self.assertEqual((fetched.content, fetched.digest), (None, DIGEST))
        self.assertEqual((await said(fetched) or {})["title"], "One")

    async def test_suspects_are_read_one_by_one(self) -> None:
        slow = [self.fetch(f"/slow?{number}") for number in range(3)]
        while len(self.pages.seen) < 3:
            await deferLater(_reactor, 0.01)
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        for each in slow:
            await self.assertFailure(each, Unavailable)
        again = [self.fetch(f"/slow?{number}") for number in range(3)]
        while len(self.pages.seen) < 5:
            await deferLater(_reactor, 0.01)
        (further,) = self.further()
        self.assertEqual(further.readings, 1)
        for each in again:
            each.addErrback(lambda _: None)
            each.cancel()

    async def test_further_courier_leaves(self) -> None:
        await self.assertFailure(self.fetch("/deadly"), Unavailable)
        self.pages.answers["/deadly"] = page(200, RSS)
        await self.again("/deadly")
        self.assertEqual(len(self.further()), 1)
        self.clock.advance(STAYS)
        self.assertEqual(self.further(), [])
