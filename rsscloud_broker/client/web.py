"""Makes the requests of the clients of this package, and says for people why one has failed."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundRequest
from rsscloud_broker.outbound.urls import redirected


class ClientError(Exception):
    """A call failed.  The text says why, for people."""


@frozen
class Reply:
    """A server's answer, with its whole body.

    :ivar url: the URL that answered, after redirects; empty if it is not known.
    :ivar link: the values of the Link headers, joined by commas.
    :ivar location: where a redirect leads, as written; empty if the answer does not say it.
    """

    status: int
    content_type: str
    body: bytes = field(repr=False)
    url: str = ""
    link: str = ""
    location: str = ""

    @property
    def success(self) -> bool:
        """Whether the status is from 200 to 299."""
        return 200 <= self.status <= 299

    @property
    def accepted(self) -> bool:
        """Whether a hub has accepted a request: its status is 202, or 204 from a PubSubHubbub hub.

        A 200 comes from some page that is not a hub.
        """
        return self.status in {202, 204}

    def target(self, asked: str) -> str:
        """The URL to which this answer redirects a request.

        :param asked: the URL of the request.
        :raises ClientError: its Location is no URL.
        """
        try:
            return redirected(asked, self.location)
        except OutboundError as error:
            raise ClientError(f"{asked}: {error}") from error


@frozen
class Web:
    """Makes HTTP requests.

    :ivar outbound: sends them, with its own deadline and limits: the broker's guarded client, or
        ``AnyAddress`` for commands.
    """

    outbound: IOutbound

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, redirects: bool = True
    ) -> Reply:
        """Send a GET.

        :param redirects: whether to follow redirects; not with headers that have a secret.
        :raises ClientError: there was no answer, or its body was too large.
        """
        return await self._request(
            OutboundRequest("GET", url, headers or {}, redirects=5 if redirects else 0)
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Send a POST; a redirect is not followed.

        :raises ClientError: there was no answer, or its body was too large.
        """
        return await self._request(OutboundRequest("POST", url, headers, body))

    async def _request(self, request: OutboundRequest) -> Reply:
        """Make a request; raises ``ClientError`` if there was no answer, or a too large one."""
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
