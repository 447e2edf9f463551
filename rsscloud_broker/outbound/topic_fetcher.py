"""Reads topics: the one place where the broker fetches what it watches."""

from __future__ import annotations

from zope.interface import implementer

from rsscloud_broker.interfaces import IOutbound, ITopicFetcher
from rsscloud_broker.model import AddressRefused, Content, OutboundError, TopicUnreadable

#: How many redirects a topic may take.
REDIRECTS = 5


@implementer(ITopicFetcher)
class TopicFetcher:
    """Fetches by HTTP GET.

    :param outbound: connects only where topics may be.
    """

    def __init__(self, outbound: IOutbound) -> None:
        self._outbound = outbound

    async def fetch(self, url: str) -> Content:
        try:
            reply = await self._outbound.request("GET", url, redirects=REDIRECTS)
        except OutboundError as error:
            refused = isinstance(error, AddressRefused)
            raise TopicUnreadable(url, str(error), refused=refused) from error
        if not reply.success:
            raise TopicUnreadable(url, f"its server answered with status {reply.status}")
        return Content(body=reply.body, content_type=reply.headers.get("content-type", ""))
