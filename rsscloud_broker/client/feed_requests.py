"""Fetches a feed twice, as a careful feed reader does, and keeps all answers.

The first request is unconditional and follows redirects.  The second sends the validators of the
first answer, and should be answered with 304.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urldefrag, urljoin

from attrs import evolve, field, frozen
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.web.client import GzipDecoder
from twisted.web.http_headers import Headers

from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.errors import OutboundError, Refused, Unavailable
from rsscloud_broker.interfaces import IClock, IOutbound, OutboundRequest
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
            return urldefrag(urljoin(self.url, location)).url
        except ValueError:  # an invalid host in brackets
            return ""


@frozen
class Fetches:
    """All answers to the requests for a feed.

    :ivar redirects: the redirects that were followed, in their order.
    :ivar last: the answer after them.
    :ivar again: the answer to the second request; None if the last answer had no validators or was
        not 200, so that there was no second request.
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
    conditions = {
        condition: answer.headers[validator]
        for condition, validator in (
            ("If-None-Match", "etag"),
            ("If-Modified-Since", "last-modified"),
        )
        if answer.headers.get(validator)
    }
    again = None
    if answer.status == 200 and conditions:
        again = await ask(answer.url, conditions)
    return Fetches(tuple(redirects), answer, again, answer.target in asked)


def asking(web: Web) -> Ask:
    """Ask with the client of the commands, which calls any address that its user gives."""
    return partial(_request, web)


def asking_guarded(outbound: IOutbound, clock: IClock) -> Ask:
    """Ask with the broker's own client, which calls only addresses that the operator allows."""

    async def ask(url: str, headers: Mapping[str, str]) -> FeedAnswer:
        try:
            reply = await outbound.request(OutboundRequest("GET", url, headers))
        except OutboundError as error:
            raise ClientError(f"{url}: {error}") from error
        now = clock.wall_seconds()
        return FeedAnswer(url, reply.status, reply.headers, reply.body, reply.compressed, now)

    return ask


class _Observer:
    """A treq client for one request of a `Web`, which keeps facts that a `Reply` does not have.

    It sends more headers, follows no redirects, and keeps the answer's headers and its coding.
    """

    def __init__(self, treq: HTTPClient, headers: Mapping[str, str]) -> None:
        self._treq = treq
        self._headers = headers
        self.headers = Headers()
        self.compressed = False

    def request(self, method: str, url: str, *, headers: Headers, **options: Any) -> Deferred[Any]:
        sent = headers.copy()
        for name, text in self._headers.items():
            sent.setRawHeaders(name, [text])
        options["allow_redirects"] = False
        requesting: Deferred[Any] = self._treq.request(method, url, headers=sent, **options)
        return requesting.addCallback(self._observe, url)

    def _observe(self, response: Any, url: str) -> Any:
        self.headers = response.headers
        # treq decompresses the body and hides that it was compressed.
        inner = response.original
        self.compressed = isinstance(inner, GzipDecoder)
        if self.compressed and isinstance(inner.original, GzipDecoder):
            # A few bytes could decompress to more than fits into memory.
            raise ClientError(f"{url}: the answer is compressed more than once")
        return response


async def _request(web: Web, url: str, headers: Mapping[str, str]) -> FeedAnswer:
    """Send one request, without following a redirect."""
    observer = _Observer(web.treq, headers)
    # The observer has the one method of an HTTPClient that a Web calls.
    reply = await evolve(web, treq=cast(HTTPClient, observer)).get(url)
    received = {
        name.decode("latin-1").lower(): ", ".join(line.decode("latin-1") for line in lines)
        for name, lines in observer.headers.getAllRawHeaders()
    }
    return FeedAnswer(
        url, reply.status, received, reply.body, observer.compressed, web.clock.wall_seconds()
    )
