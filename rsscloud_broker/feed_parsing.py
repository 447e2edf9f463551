"""Parses feeds in a thread beside the reactor, one after the other.

If feeds change faster than they are parsed, those that have waited longest are skipped until they
change again.  The broker parses feeds in this way, and so does a courier.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rsscloud_broker.model import Content

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
