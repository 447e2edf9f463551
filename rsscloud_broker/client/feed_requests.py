"""Fetches a feed twice, as a careful feed reader does, and keeps all answers.

The first request is unconditional and follows redirects.  The second sends the validators of the
first answer, and should be answered with 304.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from attrs import field, frozen

from rsscloud_broker.client.web import ClientError
from rsscloud_broker.errors import OutboundError, Refused, Unavailable
from rsscloud_broker.interfaces import IClock, IOutbound, OutboundRequest
from rsscloud_broker.outbound.urls import redirected
from rsscloud_broker.wire.conditional import conditions
from rsscloud_broker.wire.web_address import REDIRECTS

#: The statuses of redirects that move a feed for good, and of those that do not.
PERMANENT: Final = frozenset({301, 308})
TEMPORARY: Final = frozenset({302, 303, 307})


@frozen
class FeedAnswer:
    """A server's answer to one request.

    :ivar headers: the headers by names in lower case; several lines of one name are joined.
    :ivar body: the body, decompressed.
    :ivar compressed: whether the body was sent with gzip, which the request accepts.
    :ivar at: when the answer had arrived, in seconds since the epoch.
    """

    url: str
    status: int
    headers: Mapping[str, str] = field(factory=dict, hash=False)
    body: bytes = field(default=b"", repr=False)
    compressed: bool = False
    at: float = 0.0

    @property
    def target(self) -> str:
        """The URL to which a redirect leads; empty if the answer is not a redirect."""
        location = self.headers.get("location", "")
        if self.status not in PERMANENT | TEMPORARY or not location:
            return ""
        try:
            return redirected(self.url, location)
        except OutboundError:  # an invalid host in brackets
            return ""


@frozen
class Fetches:
    """All answers to the requests for a feed.

    :ivar redirects: the redirects that were followed, in their order.
    :ivar last: the answer after them.
    :ivar again: the answer to the second request; None if the last answer had no validators that
        can be sent back or was not 200, so that there was no second request.
    :ivar circle: whether the last answer redirects to a URL that was asked before.
    :ivar stopped: why the last redirect was not followed, if the limits of the caller are the
        reason; else empty.
    """

    redirects: tuple[FeedAnswer, ...]
    last: FeedAnswer
    again: FeedAnswer | None = None
    circle: bool = False
    stopped: str = ""


#: Sends a GET with further headers to a URL, without following redirects; raises ClientError if
#: there is no answer.
Ask: TypeAlias = Callable[[str, Mapping[str, str]], Awaitable[FeedAnswer]]

#: Counts a request to a URL, or raises ``Refused`` or ``Unavailable`` if it may not be made now.
Admit: TypeAlias = Callable[[str], object]


async def fetch_twice(ask: Ask, url: str, admit: Admit) -> Fetches:
    """Fetch a feed, and fetch it again with the validators of the first answer.

    :param admit: is asked before each redirect is followed.  The caller has admitted ``url``.
    :raises ClientError: a request was not answered.
    """
    redirects: list[FeedAnswer] = []
    asked = {url}
    answer = await ask(url, {})
    while answer.target and answer.target not in asked and len(redirects) < REDIRECTS:
        try:
            admit(answer.target)
        except (Refused, Unavailable) as error:
            return Fetches(tuple(redirects), answer, stopped=str(error))
        redirects.append(answer)
        asked.add(answer.target)
        answer = await ask(answer.target, {})
    headers = conditions(answer.headers.get("etag", ""), answer.headers.get("last-modified", ""))
    again = None
    if answer.status == 200 and headers:
        again = await ask(answer.url, headers)
    return Fetches(tuple(redirects), answer, again, circle=answer.target in asked)


def make_ask(outbound: IOutbound, clock: IClock) -> Ask:
    """Make an ``Ask`` that sends its requests by an outbound client."""

    async def ask(url: str, headers: Mapping[str, str]) -> FeedAnswer:
        """Make one GET, and note when the answer came; ``ClientError`` if none did."""
        try:
            reply = await outbound.request(OutboundRequest("GET", url, headers))
        except OutboundError as error:
            raise ClientError(f"{url}: {error}") from error
        now = clock.wall_seconds()
        return FeedAnswer(url, reply.status, reply.headers, reply.body, reply.compressed, now)

    return ask
