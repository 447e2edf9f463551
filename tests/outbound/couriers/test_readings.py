"""Tests that couriers read topics: real processes, which fetch from real servers on loopback."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from traceback import walk_tb
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from rsscloud_broker.errors import AddressRefused, EndedTopic, TopicUnreadable, Unavailable
from rsscloud_broker.model import NO_VALIDATORS, Content, Need, Validators
from rsscloud_broker.model.administration import Block
from rsscloud_broker.model.fetching import EVERYTHING, Fetched, Wanted
from rsscloud_broker.outbound import AnswerBudget
from rsscloud_broker.outbound.budget import NO_MEMORY
from rsscloud_broker.outbound.couriers import crew
from rsscloud_broker.outbound.couriers.crew import CourierFetcher
from rsscloud_broker.outbound.couriers.link import BESIDES_LAST_BODY
from rsscloud_broker.outbound.couriers.messages import ReadDone, TopicRules
from rsscloud_broker.outbound.couriers.spawning import COMMAND
from tests.outbound.couriers.crashing import READING
from tests.outbound.couriers.fixture import REACTOR, CrewTestCase, until
from tests.outbound.servers import half, page

RSS = b"<rss version='2.0'><channel><title>One</title></channel></rss>"
LIMIT = 1024 * 1024
TYPE = {"content-type": "text/xml"}
DIGEST, SIZE = Content(RSS).digest, len(RSS)


class ReadingTestCase(CrewTestCase):
    """A crew of one courier, and a server of topics."""

    allowed = ()
    rules = TopicRules("tests/1.0", "http://b.example", 30.0, LIMIT, ["127.0.0.0/8"])

    def setUp(self) -> None:
        super().setUp()
        self.pages = self.callback
        self.pages.answers["/feed"] = page(200, RSS, **TYPE)
        self.budget = AnswerBudget.of_topics(LIMIT, REACTOR.callFromThread)
        self.fetcher = CourierFetcher(self.crew, self.budget)

    def fetch(
        self,
        path: str = "/feed",
        known: Validators = NO_VALIDATORS,
        wanted: Wanted = EVERYTHING,
        subscribers: int = 0,
    ) -> Deferred[Fetched]:
        fetching = self.fetcher.fetch(self.url + path, known, subscribers, wanted)
        return Deferred.fromCoroutine(fetching)

    async def refused(self, path: str) -> TopicUnreadable:
        error = await self.assertFailure(self.fetch(path), TopicUnreadable)
        assert isinstance(error, TopicUnreadable)
        return error


class WantedTests(ReadingTestCase):
    async def test_content_that_is_wanted(self) -> None:
        packed = gzip.compress(RSS)
        self.pages.answers["/feed"] = page(200, packed, **TYPE, content_encoding="gzip")
        fetched = await self.fetch(subscribers=7)
        self.assertEqual(fetched.content, Content(RSS, "text/xml"))
        self.assertEqual((fetched.digest, fetched.size), (DIGEST, SIZE))
        self.assertEqual(fetched.result, f"200, {SIZE} bytes")
        (agent,) = self.pages.seen[0].headers.getRawHeaders("user-agent", [])
        self.assertEqual(agent, "tests/1.0 (+http://b.example; 7 subscribers)")

    async def test_content_that_crosses(self) -> None:
        """It does if it has changed and is to be parsed, or if notifications wait for it."""
        content = Content(RSS, "text/xml")
        for wanted, expected in (
            (Wanted(Need.CHANGES, DIGEST, SIZE), None),
            (Wanted(Need.CHANGES, b"1" * 32, SIZE), content),
            (Wanted(Need.CONTENT, DIGEST, SIZE), content),
        ):
            fetched = await self.fetch(wanted=wanted)
            self.assertEqual((fetched.content, fetched.digest), (expected, DIGEST), wanted)

    async def test_validators(self) -> None:
        self.pages.answers["/new"] = page(200, RSS, etag='"é"', cache_control="no-store")
        self.pages.answers["/old"] = page(304)
        fetched = await self.fetch("/new")
        self.assertEqual((fetched.validators, fetched.fresh_seconds), (Validators('"Ã©"'), 0.0))
        fetched = await self.fetch("/old", fetched.validators, Wanted(Need.CHANGES, DIGEST, SIZE))
        self.assertEqual((fetched.content, fetched.digest), (None, None))
        self.assertEqual(fetched.validators, Validators('"Ã©"'))

    async def test_header_with_a_nul(self) -> None:
        """The broker takes no text with a NUL from a courier, and would end it."""
        self.pages.answers["/nul"] = page(200, RSS, content_type="text/xml\0;a=\0", etag='"\0"')
        fetched = await self.fetch("/nul")
        self.assertEqual(fetched.content, Content(RSS, "text/xml ;a="))
        self.assertEqual(fetched.validators, Validators('" "'))

    async def test_question_that_cannot_be_sent(self) -> None:
        """The topic cannot be read then, as by a fetcher without couriers."""
        with self.assertRaises(TopicUnreadable) as raised:
            await self.fetcher.fetch("http://127.0.0.1/\ud800")
        self.assertIn("the request is faulty", raised.exception.reason)

    async def test_own_content_is_counted_while_it_is_in_memory(self) -> None:
        self.pages.answers["/large"] = page(200, b"x" * LIMIT)
        fetched = await self.fetch("/large")
        self.assertEqual(self.budget.contents.held, LIMIT)
        del fetched
        self.budget.contents.held += 10**9
        error = await self.assertFailure(self.fetch("/large"), Unavailable)
        self.assertIn(NO_MEMORY, str(error))

    async def test_content_for_which_there_is_no_memory_is_dropped_at_once(self) -> None:
        """An error that somebody keeps for a while must not keep the content, too."""
        self.pages.answers["/large"] = page(200, b"x" * LIMIT)
        self.budget.contents.held += 10**9
        held: list[object] = []
        try:
            await self.fetch("/large")
        except Unavailable as error:
            for frame, _ in walk_tb(error.__traceback__):
                if frame.f_globals["__name__"] == crew.__name__:
                    held += frame.f_locals.values()
        self.assertIn(self.fetcher, held)
        self.assertFalse([each for each in held if isinstance(each, ReadDone | Content)])


class RuleTests(ReadingTestCase):
    async def test_moves_and_ends(self) -> None:
        self.pages.answers |= {
            "/moved": page(301, location=f"{self.url}/feed"),
            "/gone": page(410),
            "/not": page(404),
            "/broken": page(503, retry_after="3600"),
        }
        self.assertEqual((await self.fetch("/moved")).moved_to, f"{self.url}/feed")
        self.assertIsInstance(await self.refused("/gone"), EndedTopic)
        self.assertTrue((await self.refused("/not")).lasting)
        broken = await self.refused("/broken")
        self.assertEqual((broken.lasting, broken.retry_after), (False, 3600.0))

    async def test_limit_of_a_content_changes(self) -> None:
        self.pages.answers["/large"] = page(200, b"x" * 2 * LIMIT)
        error = await self.refused("/large")
        self.assertTrue(error.refused)
        self.assertIn("too large to be read", error.reason)
        self.crew.change_rules(TopicRules(body_limit=3 * LIMIT, allowed=["127.0.0.0/8"]))
        self.assertEqual((await self.fetch("/large")).size, 2 * LIMIT)

    async def test_content_of_the_largest_size(self) -> None:
        """Frames that a courier sends may have no more, and what was allowed earlier."""
        largest = 5 * LIMIT
        self.pages.answers["/large"] = page(200, b"x" * largest, **TYPE)
        self.crew.change_rules(TopicRules(body_limit=largest, allowed=["127.0.0.0/8"]))
        self.assertEqual(self.courier._limits().frame, largest + BESIDES_LAST_BODY)
        readings = [self.fetch("/large") for _ in range(3)]
        for reading in readings:
            fetched = await reading
            self.assertEqual(fetched.content, Content(b"x" * largest, "text/xml"))
        self.crew.change_rules(TopicRules(body_limit=LIMIT, allowed=["127.0.0.0/8"]))
        self.assertEqual(self.courier._limits().frame, largest + BESIDES_LAST_BODY)

    async def test_networks_are_those_of_topics(self) -> None:
        """Callbacks may call none beside public ones here."""
        await self.assertFailure(self.request(), AddressRefused)
        self.crew.change_rules(TopicRules(body_limit=LIMIT, allowed=[]))
        self.assertTrue((await self.refused("/feed")).refused)

    async def test_blocked_topics_and_hosts(self) -> None:
        for block in (
            Block("topic", f"{self.url}/feed", "spam", "alice", 0.0),
            Block("host", "127.0.0.1", "spam", "alice", 0.0),
        ):
            self.crew.block([block, Block("source", "10.0.0.0/8", "spam", "alice", 0.0)])
            self.assertIn("blocked here: spam", (await self.refused("/feed")).reason)
        self.crew.block([])
        self.assertEqual((await self.fetch()).size, SIZE)

    async def test_cancelled(self) -> None:
        fetching = self.fetch("/slow")
        await self.pages.asked
        self.assertEqual((self.crew.readings, self.crew.under_way), (1, 0))
        fetching.addErrback(lambda _: None).cancel()
        self.assertEqual(self.crew.readings, 0)
        self.assertEqual((await self.fetch()).size, SIZE)

    async def test_stopped(self) -> None:
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
        bad = {
            "/bomb": page(200, bomb, content_encoding="deflate"),
            "/deep": page(200, deep),
            "/wide": page(200, wide),
            "/entities": page(200, entities),
            "/garbage": page(200, bomb[: len(bomb) // 2], content_encoding="deflate"),
            "/endless": page(200, b"x" * (2 * LIMIT)),
        }
        self.pages.answers |= {**bad, "/half": half}
        dripping = [self.fetch(f"/half?{number}") for number in range(10)]
        await self.fetch()
        wanted, pid = Wanted(Need.CHANGES), self.courier._process.pid

        async def read_all() -> list[str]:
            fetching = [
                self.fetch(path, wanted=wanted).addCallbacks(_told, _refusal) for path in [*bad] * 3
            ]
            for _ in range(10):
                self.assertEqual((await self.fetch()).size, SIZE)
            return [await each for each in fetching]

        await read_all()
        before = _memory()
        for _ in range(3):
            results = await read_all()
        self.assertLess(_memory() - before, 8 * LIMIT)
        # The last content is counted after it is gone.
        await until(lambda: not self.budget.contents.held)
        self.assertEqual(self.courier._process.pid, pid)
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
    """An answer ends the courier that reads it."""

    command = (*COMMAND[:-1], "tests.outbound.couriers.crashing")

    def setUp(self) -> None:
        super().setUp()
        self.pages.answers["/deadly"] = page(200, b"<rss>" + READING)

    async def test_all_that_was_under_way_has_failed(self) -> None:
        slow = self.fetch("/slow")
        await self.pages.asked
        await self.assertFailure(self.fetch("/deadly"), TopicUnreadable)
        await self.assertFailure(slow, TopicUnreadable)

    async def test_last_words_of_a_crash(self) -> None:
        """The log says where in the program it was."""
        with capturedLogs() as events:
            await self.assertFailure(self.fetch("/deadly"), TopicUnreadable)
        lines = [str(formatEvent(event)) for event in events]
        (first,) = [line for line in lines if "Fatal Python error: Aborted" in line]
        (place,) = [line for line in lines if "crashing.py" in line and "_redirect" in line]
        self.assertLess(lines.index(first), lines.index(place))
