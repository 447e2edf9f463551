"""Lets the clients of this package make their requests through the broker's guarded client."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, frozen

from rsscloud_broker.client.web import ClientError, Reply
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundRequest


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
        return await self._request(
            OutboundRequest("GET", url, headers or {}, redirects=5 if redirects else 0)
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """See ``Web.post``."""
        return await self._request(OutboundRequest("POST", url, headers, body))

    async def _request(self, request: OutboundRequest) -> Reply:
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            reply = await self.outbound.request(evolve(request, headers=headers))
        except OutboundError as error:
            raise ClientError(f"{request.url}: {error}") from error
        given = reply.headers
        kind, link, location = (
            given.get(each, "") for each in ("content-type", "link", "location")
        )
        return Reply(reply.status, kind, reply.body, reply.url, link, location)
