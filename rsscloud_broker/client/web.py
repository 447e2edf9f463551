"""Makes the requests of the clients of this package, and says for people why one has failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve, frozen

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply, OutboundRequest

#: The statuses by which a hub accepts a request; 204 is that of a PubSubHubbub hub.  A 200 comes
#: from some page that is not a hub.
ACCEPTED: Final = frozenset({202, 204})


class ClientError(Exception):
    """A call failed.  The text says why, for people."""


@frozen
class Web:
    """Makes HTTP requests.

    :ivar outbound: sends them, with its own deadline and limits: the broker's guarded client, or
        ``AnyAddress`` for commands.
    """

    outbound: IOutbound

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, redirects: bool = True
    ) -> OutboundReply:
        """Send a GET.

        :param redirects: whether to follow redirects; not with headers that have a secret.
        :raises ClientError: there was no answer, or its body was too large.
        """
        return await self._request(
            OutboundRequest("GET", url, headers or {}, redirects=5 if redirects else 0)
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> OutboundReply:
        """Send a POST; a redirect is not followed.

        :raises ClientError: there was no answer, or its body was too large.
        """
        return await self._request(OutboundRequest("POST", url, headers, body))

    async def _request(self, request: OutboundRequest) -> OutboundReply:
        """Make a request; raises ``ClientError`` if there was no answer, or a too large one."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            return await self.outbound.request(evolve(request, headers=headers))
        except OutboundError as error:
            raise ClientError(f"{request.url}: {error}") from error
