"""Lets the clients of this package make their requests through the broker's guarded client."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from rsscloud_broker.client.web import ClientError, Reply
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound


@frozen
class GuardedWeb:
    """Makes HTTP requests as ``Web`` does, only to addresses that the operator allows.

    :ivar outbound: makes the requests, with its own deadline and limits.
    """

    outbound: IOutbound

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, redirects: bool = True
    ) -> Reply:
        """See ``Web.get``."""
        return await self._request("GET", url, headers or {}, b"", 5 if redirects else 0)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """See ``Web.post``."""
        return await self._request("POST", url, headers, body, 0)

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, redirects: int
    ) -> Reply:
        sent = {name.lower(): value for name, value in headers.items()}
        try:
            reply = await self.outbound.request(method, url, sent, body, redirects)
        except OutboundError as error:
            raise ClientError(f"{url}: {error}") from error
        given = reply.headers
        kind, link, location = (
            given.get(each, "") for each in ("content-type", "link", "location")
        )
        return Reply(reply.status, kind, reply.body, reply.url, link, location)
