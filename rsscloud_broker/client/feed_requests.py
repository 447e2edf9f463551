"""Asks for a feed as a careful reader does, and keeps what its server said each time.

First without conditions, over whatever redirects there are; then once more,
with the validators of the first answer, which is to bring a 304.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urldefrag, urljoin

from attrs import evolve, field, frozen
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.web.client import GzipDecoder
from twisted.web.http_headers import Headers

from rsscloud_broker.client.web import ClientError, Web

#: How many redirects are followed.
MAX_REDIRECTS: Final = 10

#: Redirects that move a feed for good, and those that do not.
PERMANENT: Final = frozenset({301, 308})
TEMPORARY: Final = frozenset({302, 303, 307})


@frozen
class Answer:
    """What a server answered to one request.

    :ivar headers: by names in lower case; several lines of one are joined.
    :ivar body: after decompression.
    :ivar compressed: whether it came with gzip, which was offered.
    :ivar at: when it was there, in seconds since the epoch.
    """

    url: str
    status: int
    headers: Mapping[str, str] = field(factory=dict, hash=False)
    body: bytes = field(default=b"", repr=False)
    compressed: bool = False
    at: float = 0.0

    @property
    def target(self) -> str:
        """The URL that a redirect leads to; empty if this is none."""
        location = self.headers.get("location", "")
        if self.status not in PERMANENT | TEMPORARY or not location:
            return ""
        try:
            return urldefrag(urljoin(self.url, location)).url
        except ValueError:  # a host in brackets that is none
            return ""


@frozen
class Fetches:
    """All that came of asking for a feed.

    :ivar redirects: answers that led on, in their order.
    :ivar last: the answer that did not.
    :ivar again: to the request with the validators of the last one; None if it
        had none, or was no success.
    :ivar circle: whether the last answer leads to where it was asked before.
    """

    redirects: tuple[Answer, ...]
    last: Answer
    again: Answer | None = None
    circle: bool = False


async def fetch_twice(web: Web, url: str) -> Fetches:
    """Ask for a feed, and ask again with what was learned.

    :raises ClientError: there was no answer.
    """
    redirects: list[Answer] = []
    asked = {url}
    answer = await _look(web, url, {})
    while answer.target and answer.target not in asked and len(redirects) < MAX_REDIRECTS:
        redirects.append(answer)
        asked.add(answer.target)
        answer = await _look(web, answer.target, {})
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
        again = await _look(web, answer.url, conditions)
    return Fetches(tuple(redirects), answer, again, answer.target in asked)


class _Observer:
    """Stands in for a treq client, to see what a Web does not look at.

    It follows no redirects, sends more headers, and keeps the answer.
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
        asking: Deferred[Any] = self._treq.request(method, url, headers=sent, **options)
        return asking.addCallback(self._observe, url)

    def _observe(self, response: Any, url: str) -> Any:
        self.headers = response.headers
        # treq undoes the compression and hides that there was one.
        inner = response.original
        self.compressed = isinstance(inner, GzipDecoder)
        if self.compressed and isinstance(inner.original, GzipDecoder):
            # A few bytes would become more than fits into memory.
            raise ClientError(f"{url}: the answer is compressed more than once")
        return response


async def _look(web: Web, url: str, headers: Mapping[str, str]) -> Answer:
    """One request; a redirect is an answer like any other."""
    observer = _Observer(web.treq, headers)
    # It has the one method of an HTTPClient that a Web calls.
    reply = await evolve(web, treq=cast(HTTPClient, observer)).get(url)
    received = {
        name.decode("latin-1").lower(): ", ".join(line.decode("latin-1") for line in lines)
        for name, lines in observer.headers.getAllRawHeaders()
    }
    return Answer(
        url, reply.status, received, reply.body, observer.compressed, web.clock.wall_seconds()
    )
