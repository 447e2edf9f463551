"""Databases with the tables of logs, entries, and a feed whose documents change, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from attrs import Factory, define
from sqlalchemy import Engine, make_url
from twisted.internet.defer import Deferred
from zope.interface import implementer

from rsscloud_broker.database import sqlite
from rsscloud_broker.database.engine import for_writing, open_engine
from rsscloud_broker.interfaces import IEntryHandler, OutboundReply, OutboundRequest
from rsscloud_broker.simplefeed import log, pruning
from rsscloud_broker.simplefeed.atom import FeedUrls, render
from rsscloud_broker.simplefeed.entries import Entry
from rsscloud_broker.simplefeed.errors import EntryFailed
from rsscloud_broker.simplefeed.schema import TABLES
from rsscloud_broker.storage import upgrade
from rsscloud_broker.testing import reply
from tests.postgresql import empty_database

#: The time of the first entry of tests, in seconds since the epoch.
NOON = 1_000_000_000.0

URLS = FeedUrls("http://a.example/recent", "http://a.example/documents/")


@contextmanager
def migrated(url: str) -> Iterator[Engine]:
    """An engine whose transactions write, on a database that has the tables of logs."""
    if url.startswith("sqlite:"):
        sqlite.make_database_file(make_url(url))
    engine = open_engine(url)
    try:
        with for_writing(engine).begin() as conn:
            upgrade.upgrade_app(conn, "simplefeed", TABLES)
        yield for_writing(engine)
    finally:
        engine.dispose()


def in_memory() -> AbstractContextManager[Engine]:
    """SQLite in memory."""
    return migrated("sqlite://")


def in_file(directory: str) -> AbstractContextManager[Engine]:
    """SQLite in a new file."""
    return migrated(f"sqlite:///{Path(directory).resolve()}/log.db")


def on_postgresql() -> AbstractContextManager[Engine]:
    """A new database on PostgreSQL."""
    return migrated(empty_database())


def some(count: int, first: int = 1) -> list[Entry]:
    """Entries, a second apart, whose titles are their numbers."""
    return [Entry(str(number), NOON + number) for number in range(first, first + count)]


class Feed:
    """A log, and its documents by their URLs."""

    def __init__(
        self, engine: Engine, per_document: int = 3, urls: FeedUrls = URLS, at: float = NOON
    ) -> None:
        self._engine = engine
        self._urls = urls
        self._count = 0
        with engine.begin() as conn:
            log.open_log(conn, log.Description("feed", "Feed", per_document=per_document), at)

    def append(self, count: int) -> None:
        self.append_entries(some(count, self._count + 1))
        self._count += count

    def append_entries(self, entries: Sequence[Entry]) -> None:
        with self._engine.begin() as conn:
            log.append(conn, "feed", entries)

    def prune(self, through: int) -> None:
        with self._engine.begin() as conn:
            pruning.prune(conn, "feed", through)

    def get(self, url: str) -> bytes | None:
        """The document at a URL; None if there is none."""
        recent = url == self._urls.recent
        number = None if recent else int(url.removeprefix(self._urls.documents))
        with self._engine.begin() as conn:
            found = log.read_document(conn, "feed", number)
        if found is None or found.gone:
            return None
        return render(found, self._urls, recent=recent)

    def recent(self) -> bytes:
        """The recent document."""
        found = self.get(self._urls.recent)
        assert found is not None
        return found

    def answer(self, request: OutboundRequest) -> OutboundReply:
        """The answer to a request for a document."""
        document = self.get(request.url)
        if document is None:
            return reply(404)
        etag = f'"{hash(document)}"'
        if request.headers.get("if-none-match") == etag:
            return reply(304)
        return reply(200, document, etag=etag)


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
