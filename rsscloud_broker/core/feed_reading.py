"""Reads what has changed as a feed, for what it says of itself.

Nobody waits for that: a change is detected, stored and told without it.  It is done
in a thread, one feed after the other; where more change than can be read, those that
have waited longest are left out, until they change again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import asdict
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import Content, Unavailable
from rsscloud_broker.wire.feed import UnreadableFeed, read_feed
from rsscloud_broker.wire.feed_hints import Hints

#: Feeds that wait to be read.
MAX_WAITING = 100

#: Ids of entries that are kept of a feed.
MAX_ENTRIES = 50


class FeedReading:
    """Reads feeds and keeps what they say of themselves.

    :param in_thread: calls a function in a thread.
    """

    log = Logger()

    def __init__(self, store: IStore, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._store = store
        self._in_thread = in_thread
        self._waiting: OrderedDict[str, Content] = OrderedDict()
        self._working = False

    def take(self, url: str, content: Content) -> None:
        """Read a content soon, in place of an earlier one of that topic."""
        self._waiting[url] = content
        self._waiting.move_to_end(url)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
        if not self._working:
            self._working = True
            Deferred.fromCoroutine(self._work())

    async def _work(self) -> None:
        while self._waiting:
            url, content = self._waiting.popitem(last=False)
            try:
                await self._store.record_feed(url, await self._in_thread(summary, content))
            except Unavailable as error:
                self.log.error("What {url} says of itself is not kept: {e}", url=url, e=error)
            except Exception:  # a bug must not end the reading of others
                self.log.failure("Reading {url} as a feed failed.", url=url)
        self._working = False


def summary(content: Content) -> dict[str, Any]:
    """What a content says of itself as a feed, as JSON can hold it.

    :returns: the fields of ``FeedFacts``; of what is no feed, only why not.
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
    return said


def hints_of(feed: Mapping[str, Any]) -> Hints:
    """The hints that such a summary holds."""
    said = dict(feed.get("hints") or {})
    for name in ("skip_hours", "skip_days"):
        said[name] = frozenset(said.get(name) or ())
    return Hints(**said)
