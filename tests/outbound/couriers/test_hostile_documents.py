"""Each hostile document, by each function that parses it, in real parsers.

A document is read, or it has failed; both within the limits of a parser, which the kernel keeps.
It is never a fault that nobody foresaw, and documents of others are parsed meanwhile.
"""

from __future__ import annotations

import contextlib  # trial takes the name "suppress" for one of its own
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.task import LoopingCall
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase

from rsscloud_broker.apps.river.discovery import feeds_in_page
from rsscloud_broker.apps.river.opml import read_list
from rsscloud_broker.apps.river.reading import read_document
from rsscloud_broker.errors import DocumentFault
from rsscloud_broker.http.large_calls import read_call
from rsscloud_broker.model import Content
from rsscloud_broker.outbound.couriers.parsers import Parsers
from rsscloud_broker.simplefeed.documents import parse
from rsscloud_broker.simplefeed.entries import content_of
from rsscloud_broker.util.clock import SystemClock
from rsscloud_broker.wire.feed_summary import facts_of
from tests.hostile_documents import FEEDS, HTML, LISTS, PAGES
from tests.outbound.couriers import parsed
from tests.outbound.couriers.fixture import REACTOR, lasting_fork_server

URL = "http://evil.example/feed"
GOOD = b"<rss version='2.0'><channel><title>good</title><item><guid>1</guid></item></channel></rss>"

Made = Callable[[], Any]


class HostileDocumentsTests(TestCase):
    timeout = 300

    def setUp(self) -> None:
        server = lasting_fork_server(REACTOR, parsed.COMMAND)
        self.parsers = Parsers(REACTOR, SystemClock(REACTOR), server)
        self.addCleanup(server.stopService)
        self.parsers.startService()
        self.addCleanup(self.parsers.stopService)
        self.good = 0

    async def parse_all(
        self, documents: Mapping[str, Made], function: Callable[..., Any], *beside: Any
    ) -> None:
        with capturedLogs() as logged:
            others = LoopingCall(self.parse_good)
            done = others.start(0.1)
            for name, make in documents.items():
                with contextlib.suppress(DocumentFault):
                    await self.parsers(f"{function.__name__}: {name}", function, make(), *beside)
            others.stop()
            await done
        said = [formatEvent(event) or "" for event in logged]
        self.assertEqual([line for line in said if "a fault of the broker" in line], [])
        self.assertGreater(self.good, 0)

    async def parse_good(self) -> None:
        """Somebody else's document is parsed."""
        found = await self.parsers("good.example", read_document, GOOD, "", "http://good.example/")
        self.assertEqual(found.title, "good")
        self.good += 1

    async def test_items_of_feeds(self) -> None:
        await self.parse_all(FEEDS, read_document, "application/xml", URL)

    async def test_facts_of_feeds(self) -> None:
        contents = {name: lambda make=make: Content(make(), "") for name, make in FEEDS.items()}
        await self.parse_all(contents, facts_of)

    async def test_feeds_of_events(self) -> None:
        await self.parse_all(FEEDS, parse, URL, {})

    async def test_contents_in_entries(self) -> None:
        for media_type in ("application/xml", "text/plain; charset=idna"):
            await self.parse_all(FEEDS, content_of, media_type)

    async def test_saved_feeds(self) -> None:
        saved = {name: lambda make=make: ("rss.xml", make(), "") for name, make in FEEDS.items()}
        await self.parse_all(saved, parsed.is_topic)

    async def test_large_calls(self) -> None:
        await self.parse_all(FEEDS, read_call, None, False)

    async def test_lists(self) -> None:
        await self.parse_all(LISTS, read_list)

    async def test_pages(self) -> None:
        await self.parse_all(PAGES, feeds_in_page, URL)

    async def test_html_of_editors(self) -> None:
        html = {name: lambda make=make: make() * 5 for name, make in HTML.items()}
        await self.parse_all(html, parsed.message)
