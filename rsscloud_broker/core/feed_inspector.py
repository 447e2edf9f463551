"""Has changed topics parsed as feeds, and stores a summary: title, entries, polling hints, links.

``ChangeDetector`` hands each changed topic to ``FeedInspector.inspect`` and does not wait: changes
are stored and subscribers notified without the summary.  A summary that is too large is not stored,
nor is one for which there was no time: the next change brings another one.
"""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rsscloud_broker.errors import DocumentFault, ParsingUnavailable, Unavailable
from rsscloud_broker.interfaces import Parsing
from rsscloud_broker.model import Content, host_of
from rsscloud_broker.storage import Store
from rsscloud_broker.util.urls import joined
from rsscloud_broker.wire.feed_facts import FeedFacts
from rsscloud_broker.wire.feed_summary import facts_of, summary


class FeedInspector:
    """Stores the summaries of feeds."""

    log = Logger()

    def __init__(self, store: Store, parse: Parsing) -> None:
        self._store = store
        self._parse = parse

    def inspect(self, url: str, content: Content) -> None:
        """Store the summary of a topic that has changed, once it is there."""
        Deferred.fromCoroutine(self._record(url, content))

    async def _record(self, url: str, content: Content) -> None:
        """Store the summary, or why the topic is no feed; log it if neither can be stored."""
        try:
            try:
                facts = await self._parse(host_of(url), facts_of, content)
            except DocumentFault as error:
                facts = error.reason
            if not isinstance(facts, str):
                facts = _with_whole_urls(facts, url)
            await self._store.record_feed(url, summary(facts))
        except ParsingUnavailable as error:  # the broker stops, or has said what is wrong
            self.log.info("{url} is not read as a feed: {error}", url=url, error=error)
        except Unavailable as error:
            self.log.error(
                "The summary of the feed {url} is not stored: {error}", url=url, error=error
            )
        except Exception:  # log a bug
            self.log.failure("Reading {url} as a feed failed.", url=url)


def _with_whole_urls(facts: FeedFacts, url: str) -> FeedFacts:
    """What a feed says about itself, without links that are relative to its URL."""
    link, own = (text and joined(url, text) for text in (facts.link, facts.self_link))
    hubs = tuple(filter(None, (joined(url, hub) for hub in facts.hubs)))
    return evolve(facts, link=link, self_link=own, hubs=hubs)
