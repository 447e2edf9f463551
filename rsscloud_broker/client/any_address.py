"""An outbound client for commands: it calls any address that its user gives.

A follower makes very many requests.  So this client uses Twisted's agent without treq, which takes
each URL apart and keeps cookies, and needs half the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperlink import EncodedURL
from treq import collect
from twisted.web.client import ContentDecoderAgent, GzipDecoder
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent
from zope.interface import implementer

from rsscloud_broker.client.feed_requests import FeedAnswer
from rsscloud_broker.client.web import MAX_BYTES, SECONDS, USER_AGENT, ClientError, in_time
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IClock, IOutbound, OutboundReply, OutboundRequest


@implementer(IOutbound)
class AnyAddress:
    """Implements ``IOutbound`` for GET, without the address guard of the broker.

    :param seconds: how long an exchange may take, from the look-up of the name to the last byte.
    :param max_bytes: the largest body that is read, after decompression.
    """

    def __init__(
        self, agent: IAgent, clock: IClock, seconds: float = SECONDS, max_bytes: int = MAX_BYTES
    ) -> None:
        self._agent = ContentDecoderAgent(agent, [(b"gzip", GzipDecoder)])
        self._clock = clock
        self._seconds = seconds
        self._max_bytes = max_bytes

    async def request(self, request: OutboundRequest) -> OutboundReply:
        if request.method != "GET" or request.body or request.signing:
            raise ValueError("this client sends GET requests only")
        hops: list[tuple[int, str]] = []
        try:
            answer = await self._ask(request.url, request.headers)
            while answer.target and len(hops) < request.redirects:
                hops.append((answer.status, answer.target))
                answer = await self._ask(answer.target, request.headers)
        except ClientError as error:
            raise OutboundError(str(error)) from error
        return OutboundReply(
            answer.status, answer.headers, answer.body, answer.url, tuple(hops), answer.compressed
        )

    async def _ask(self, url: str, headers: Mapping[str, str]) -> FeedAnswer:
        """Send one request, without following a redirect.

        :raises ClientError: there was no answer, or its body was too large.
        """
        return await in_time(url, self._exchange(url, headers), self._seconds, self._clock)

    async def _exchange(self, url: str, headers: Mapping[str, str]) -> FeedAnswer:
        sent = Headers({"User-Agent": [USER_AGENT]})
        for name, text in headers.items():
            sent.setRawHeaders(name, [text])
        ascii_url = url if url.isascii() else EncodedURL.from_text(url).to_uri().to_text()
        response: Any = await self._agent.request(b"GET", ascii_url.encode("ascii"), sent)
        compressed = isinstance(response, GzipDecoder)
        if compressed and isinstance(response.original, GzipDecoder):
            # A few bytes could decompress to more than fits into memory.
            raise ClientError(f"{url}: the answer is compressed more than once")
        content = bytearray()

        def add(data: bytes) -> None:
            content.extend(data)
            if len(content) > self._max_bytes:
                raise ClientError(f"{url}: the answer is larger than {self._max_bytes} bytes")

        await collect(response, add)
        received = {
            name.decode("latin-1").lower(): ", ".join(line.decode("latin-1") for line in lines)
            for name, lines in response.headers.getAllRawHeaders()
        }
        body = bytes(content)
        return FeedAnswer(
            url, response.code, received, body, compressed, self._clock.wall_seconds()
        )
