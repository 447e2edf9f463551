"""A feed whose documents change, and a client that reads it without sockets, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import Factory, define
from sqlalchemy import Engine
from twisted.internet.defer import Deferred
from zope.interface import implementer

from rsscloud_broker.errors import OutboundError, TooLarge
from rsscloud_broker.interfaces import IEntryHandler, IOutbound, OutboundReply, OutboundRequest
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.atom import FeedUrls, render
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.errors import EntryFailed
from tests.simplefeed.logs import NOON, some

URLS = FeedUrls("http://a.example/recent", "http://a.example/documents/")


class Feed:
    """A log, and its documents by their URLs."""

    def __init__(self, engine: Engine, per_document: int = 3, urls: FeedUrls = URLS) -> None:
        self._engine = engine
        self._urls = urls
        self._count = 0
        with engine.begin() as conn:
            log.open_log(conn, log.Description("feed", "Feed", per_document=per_document), NOON)

    def append(self, count: int) -> None:
        with self._engine.begin() as conn:
            log.append(conn, "feed", some(count, self._count + 1))
        self._count += count

    def get(self, url: str) -> bytes | None:
        """The document at a URL; None if there is none."""
        recent = url == self._urls.recent
        number = None if recent else int(url.removeprefix(self._urls.documents))
        with self._engine.begin() as conn:
            found = log.read_document(conn, "feed", number)
        return None if found is None else render(found, self._urls, recent=recent)


def answer(body: bytes, status: int = 200, **headers: str) -> OutboundReply:
    """An answer of a server."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return OutboundReply(status, named, body, "")


@implementer(IOutbound)
@define
class Client:
    """Reads the documents of a feed.

    :ivar instead: what URLs answer instead: an answer, an error, or a Deferred of one.
    :ivar asked: the URLs that were requested, and ``headers`` of the last request.
    """

    feed: Feed
    instead: dict[str, Any] = Factory(dict)
    asked: list[str] = Factory(list)
    headers: Mapping[str, str] = Factory(dict)

    async def request(self, request: OutboundRequest) -> OutboundReply:
        url = request.url
        self.asked.append(url)
        self.headers = request.headers
        found = self.instead.get(url)
        if isinstance(found, Deferred):
            found = await found
        if isinstance(found, Exception):
            raise found
        if found is None:
            document = self.feed.get(url)
            found = answer(b"", 404) if document is None else answer(document)
        assert isinstance(found, OutboundReply)
        return found


UNREACHABLE = OutboundError("connection refused")
TOO_LARGE = TooLarge("the answer has more than 10485760 bytes")


@implementer(IEntryHandler)
@define
class Collector:
    """Collects the titles of the entries.

    :ivar failures: how many of the next calls fail.
    :ivar waits: if it is a Deferred, the next call waits for it.
    """

    batch: int = 1
    titles: list[str] = Factory(list)
    failures: int = 0
    waits: Deferred[None] | None = None

    async def handle(self, entries: Sequence[Entry], document: str) -> None:
        if self.failures:
            self.failures -= 1
            raise EntryFailed("the disk is full")
        if self.waits is not None:
            await self.waits
        assert 0 < len(entries) <= self.batch
        self.titles += [each.title for each in entries]


def titles(last: int, first: int = 1) -> list[str]:
    """The titles of entries of a feed, in order."""
    return [str(number) for number in range(first, last + 1)]
