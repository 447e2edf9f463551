"""What front doors learn of topics in a test."""

from __future__ import annotations

from collections.abc import Sequence

from zope.interface import implementer

from rsscloud_broker.interfaces import ITopicView
from rsscloud_broker.model import Ping, TopicOverview, TopicStatus, TopicSummary


@implementer(ITopicView)
class FakeTopicView:
    """A view of topics that a test puts into it.

    :ivar overviews: the overviews of topics, by URL.
    :ivar summaries: the topics that have subscriptions, in the order of their ids.
    :ivar listed: the pings, newest first.
    """

    def __init__(self) -> None:
        self.overviews: dict[str, TopicOverview] = {}
        self.summaries: list[TopicSummary] = []
        self.listed: list[Ping] = []

    async def overview(self, url: str, newest: bool = False) -> TopicOverview | None:
        return self.overviews.get(url)

    async def status(self, url: str) -> TopicStatus | None:
        found = self.overviews.get(url)
        return None if found is None else found.status

    async def watched(self, after: int, limit: int) -> Sequence[TopicSummary]:
        return [summary for summary in self.summaries if summary.id > after][:limit]

    async def beginning(self, begins: str, limit: int) -> Sequence[TopicOverview]:
        """Topics whose URLs begin so after the scheme."""
        return [
            overview
            for url, overview in self.overviews.items()
            if url.partition("://")[2].startswith(begins)
        ][:limit]

    async def pings(self, before: tuple[float, int] | None, limit: int) -> Sequence[Ping]:
        """The newest pings, before the time and the id of one; None for all."""
        older = [
            ping for ping in self.listed if before is None or (ping.received_at, ping.id) < before
        ]
        return older[:limit]
