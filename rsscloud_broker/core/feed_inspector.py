"""Parses changed topics as feeds and stores a summary: title, entries, polling hints, links.

``ChangeDetector`` hands each changed content to ``FeedInspector.take`` and does not wait: changes
are stored and subscribers notified without the summary.  A thread parses one feed after the
other.  If feeds change faster than they are parsed, those that have waited longest are skipped
until they change again.  A summary that is too large is not stored.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import asdict
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import Content
from rsscloud_broker.wire.feed import UnreadableFeed, read_feed
from rsscloud_broker.wire.feed_hints import Hints

#: How many feeds may wait to be parsed, and how many bytes they may have together.
MAX_WAITING, MAX_BYTES = 100, 8 * 1024 * 1024

#: How many entry ids a summary keeps.
MAX_ENTRIES = 50

#: How many bytes a summary may have, as JSON.
MAX_SUMMARY = 16 * 1024


class FeedInspector:
    """Parses feeds in a thread and stores their summaries.

    :param in_thread: calls a function in a thread and returns its result.
    """

    log = Logger()

    def __init__(self, store: IStore, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._store = store
        self._in_thread = in_thread
        self._waiting: OrderedDict[str, Content] = OrderedDict()
        self._size = 0
        self._working = False

    def take(self, url: str, content: Content) -> None:
        """Queue a content to be parsed.  It replaces an older content of the same topic."""
        earlier = self._waiting.pop(url, None)
        self._size += len(content.body) - (len(earlier.body) if earlier else 0)
        self._waiting[url] = content
        while len(self._waiting) > MAX_WAITING or self._size > MAX_BYTES:
            self._take_first()
        if not self._working:
            self._working = True
            Deferred.fromCoroutine(self._work())

    def _take_first(self) -> tuple[str, Content]:
        url, content = self._waiting.popitem(last=False)
        self._size -= len(content.body)
        return url, content

    async def _work(self) -> None:
        while self._waiting:
            url, content = self._take_first()
            try:
                await self._store.record_feed(url, await self._in_thread(summary, content))
            except Unavailable as error:
                self.log.error(
                    "The summary of the feed {url} is not stored: {error}", url=url, error=error
                )
            except Exception:  # log a bug, and go on with the other feeds
                self.log.failure("Reading {url} as a feed failed.", url=url)
        self._working = False


def summary(content: Content) -> dict[str, Any]:
    """Parse a content as a feed.

    :returns: the fields of ``FeedFacts`` as values for JSON; or, if the content is no feed or
        the summary is too large, only ``unreadable`` with the reason.
    """
    try:
        facts = read_feed(content.body, content.content_type)
    except UnreadableFeed as error:
        return {"unreadable": str(error)}
    said = asdict(facts)
    said["entry_ids"] = said["entry_ids"][:MAX_ENTRIES]
    hints = said["hints"]
    for name in ("skip_hours", "skip_days"):
        hints[name] = sorted(hints[name])
    if _size(said) > MAX_SUMMARY:
        said["entry_ids"] = []
    if _size(said) > MAX_SUMMARY:
        return {"unreadable": f"it says more than {MAX_SUMMARY} bytes of itself"}
    return said


def _size(said: Mapping[str, Any]) -> int:
    return len(json.dumps(said))


def hints_of(feed: Mapping[str, Any]) -> Hints:
    """The polling hints in a summary that ``summary`` made."""
    said = dict(feed.get("hints") or {})
    for name in ("skip_hours", "skip_days"):
        said[name] = frozenset(said.get(name) or ())
    return Hints(**said)
