"""Reads topics: the one place where the broker fetches what it watches."""

from __future__ import annotations

from zope.interface import implementer

from rsscloud_broker.interfaces import IOutbound, ITopicFetcher
from rsscloud_broker.model import (
    AddressRefused,
    Content,
    OutboundError,
    TopicEnded,
    TopicUnreadable,
)

#: How many redirects a topic may take.
REDIRECTS = 5

#: Statuses that say "not so" where 500 and above say "not now": but for these.
PASSING = frozenset({408, 425, 429})


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
        if reply.status == 410:
            raise TopicEnded(url, "its server answered that it is gone for good (status 410)")
        if not reply.success:
            lasting = 400 <= reply.status <= 499 and reply.status not in PASSING
            reason = f"its server answered with status {reply.status}"
            raise TopicUnreadable(url, reason, lasting=lasting)
        return Content(body=reply.body, content_type=reply.headers.get("content-type", ""))
