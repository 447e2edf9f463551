"""An outbound client for commands: it calls any address that its user gives."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from zope.interface import implementer

from rsscloud_broker.client.feed_requests import asking
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@implementer(IOutbound)
class AnyAddress:
    """Implements ``IOutbound`` for GET, without the address guard of the broker."""

    def __init__(self, web: Web) -> None:
        self._ask = asking(web)

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = _NONE,
        body: bytes = b"",
        redirects: int = 0,
    ) -> OutboundReply:
        if method != "GET" or body:
            raise ValueError("this client sends GET requests only")
        hops: list[tuple[int, str]] = []
        try:
            answer = await self._ask(url, headers)
            while answer.target and len(hops) < redirects:
                hops.append((answer.status, answer.target))
                answer = await self._ask(answer.target, headers)
        except ClientError as error:
            raise OutboundError(str(error)) from error
        return OutboundReply(
            answer.status, answer.headers, answer.body, answer.url, tuple(hops), answer.compressed
        )
