"""Parses changed topics as feeds and stores a summary: title, entries, polling hints, links.

``ChangeDetector`` hands each changed topic to ``FeedInspector.inspect`` and does not wait: changes
are stored and subscribers notified without the summary.  A summary that is too large is not stored.
A fetcher that reads topics in another process has them parsed there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rsscloud_broker.errors import Unavailable
from rsscloud_broker.feed_parsing import FeedParser
from rsscloud_broker.interfaces import IStore
from rsscloud_broker.model import Content, FetchResult
from rsscloud_broker.wire.feed_summary import facts_of, summary


class FeedInspector:
    """Stores the summaries of feeds.

    :param in_thread: calls a function in a thread and returns its result.
    """

    log = Logger()

    def __init__(self, store: IStore, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._store = store
        self._parser = FeedParser(_parsed, in_thread)

    def inspect(self, url: str, fetched: FetchResult, *, changed: bool) -> None:
        """Store the summary of a topic, once it is there, if the topic has changed, or if it was
        parsed all the same: its summary was lost when the process ended that parsed it first.

        :param fetched: has the content, or brings what the feed says.
        """
        facts = fetched.facts
        if facts is None and changed and fetched.content is not None:
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
