"""Parses changed topics as feeds and stores a summary: title, entries, polling hints, links.

``ChangeDetector`` hands each changed topic to ``FeedInspector.take`` and does not wait: changes
are stored and subscribers notified without the summary.  A thread parses one feed after the
other.  If feeds change faster than they are parsed, those that have waited longest are skipped
until they change again.  A summary that is too large is not stored.  A fetcher that reads topics in
another process has them parsed there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import Content, FetchResult
from rsscloud_broker.wire.feed_summary import facts_of, summary

T = TypeVar("T")

#: How many feeds may wait to be parsed, and how many bytes they may have together.
MAX_WAITING, MAX_BYTES = 100, 8 * 1024 * 1024


class FeedParser(Generic[T]):
    """Parses feeds in a thread, one after the other.

    :param parse: parses a content.
    :param in_thread: calls a function in a thread and returns its result.
    """

    log = Logger()

    def __init__(
        self, parse: Callable[[Content], T], in_thread: Callable[..., Awaitable[T]]
    ) -> None:
        self._parse = parse
        self._in_thread = in_thread
        self._waiting: OrderedDict[str, tuple[Content, Deferred[T | None]]] = OrderedDict()
        self._size = 0
        self._working = False

    def take(self, url: str, content: Content) -> Deferred[T | None]:
        """Queue a content to be parsed.  It replaces an older content of the same topic.

        :returns: what ``parse`` returned; or None if the content was replaced or skipped, or a bug
            kept it from being parsed.
        """
        if url in self._waiting:
            self._skip(url)
        parsed: Deferred[T | None] = Deferred()
        self._size += len(content.body)
        self._waiting[url] = content, parsed
        while len(self._waiting) > MAX_WAITING or self._size > MAX_BYTES:
            self._skip(next(iter(self._waiting)))
        if not self._working:
            self._working = True
            Deferred.fromCoroutine(self._work())
        return parsed

    def _take(self, url: str) -> tuple[Content, Deferred[T | None]]:
        content, parsed = self._waiting.pop(url)
        self._size -= len(content.body)
        return content, parsed

    def _skip(self, url: str) -> None:
        self._take(url)[1].callback(None)

    async def _work(self) -> None:
        while self._waiting:
            url = next(iter(self._waiting))
            content, parsed = self._take(url)
            result = None
            try:
                result = await self._in_thread(self._parse, content)
            except Exception:  # log a bug, and go on with the other feeds
                self.log.failure("Reading {url} as a feed failed.", url=url)
            parsed.callback(result)
        self._working = False


class FeedInspector:
    """Stores the summaries of feeds.

    :param in_thread: calls a function in a thread and returns its result.
    """

    log = Logger()

    def __init__(self, store: IStore, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._store = store
        self._parser = FeedParser(_parsed, in_thread)

    def take(self, url: str, fetched: FetchResult) -> None:
        """Store the summary of a changed topic, once it is there.

        :param fetched: has the content, or brings what the feed says.
        """
        facts = fetched.facts
        if facts is None and fetched.content is not None:
            facts = self._parser.take(url, fetched.content)
        if facts is not None:
            Deferred.fromCoroutine(self._record(url, facts))

    async def _record(self, url: str, facts: Awaitable[Mapping[str, Any] | None]) -> None:
        try:
            said = await facts
            if said is not None:
                await self._store.record_feed(url, said)
        except Unavailable as error:
            self.log.error(
                "The summary of the feed {url} is not stored: {error}", url=url, error=error
            )
        except Exception:  # log a bug
            self.log.failure("Reading {url} as a feed failed.", url=url)


def _parsed(content: Content) -> Mapping[str, Any]:
    return summary(facts_of(content))
