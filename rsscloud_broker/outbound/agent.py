"""Twisted's ``IAgent`` over guarded exchanges: for treq, and whoever else wants one.

An answer is read whole, counted and decompressed before anybody gets to see it, so what is
built on this agent needs no care of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IConsumer, IProtocol
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import RESPONSES
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from rsscloud_broker.outbound.exchanges import HTTPExchanger, PendingRequest
from rsscloud_broker.outbound.http1 import Answer, message
from rsscloud_broker.outbound.unpacking import Unpacker, content_coding
from rsscloud_broker.outbound.urls import target_of
from rsscloud_broker.wire.codings import ACCEPTED

#: Headers that are not the caller's to say.
_OURS = frozenset({"host", "content-length", "accept-encoding", "connection"})


@implementer(IAgent)
class GuardedAgent:
    """Makes requests.

    :param exchanges: makes them; what takes their bodies must be ``Whole``.
    """

    def __init__(self, exchanges: HTTPExchanger, unpacker: Unpacker) -> None:
        self._exchanger = exchanges
        self._unpacker = unpacker

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """Make a request; the Deferred fails with OutboundError if there is no answer.

        :param headers: of several values of one name the last is sent.
        """
        return Deferred.fromCoroutine(self._request(method, uri, headers, bodyProducer))

    async def _request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None,
        producer: IBodyProducer | None,
    ) -> IResponse:
        target = target_of(uri.decode("ascii"))
        body = _Collected()
        if producer is not None:
            await maybeDeferred(producer.startProducing, body)
        said = {name: value for name, value in _said(headers) if name not in _OURS}
        said["accept-encoding"] = ACCEPTED
        request = message(method.decode("ascii"), target, said, b"".join(body.parts))
        unheard = PendingRequest()  # who cancels this cancels what it waits for, as Deferreds do
        answer = await self._exchanger.request(unheard, target, request)
        return Response(answer, await self._unpacker.unpacked(answer))


def _said(headers: Headers | None) -> Sequence[tuple[str, str]]:
    """Names, in lower case, and last values."""
    return [
        (name.decode("ascii").lower(), values[-1].decode("utf-8", "surrogateescape"))
        for name, values in (headers or Headers()).getAllRawHeaders()
    ]


@implementer(IConsumer)
class _Collected:
    """Takes what a producer of a body writes."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """It needs no holding back."""

    def unregisterProducer(self) -> None:
        """Nor is it kept."""

    def write(self, data: bytes) -> None:
        self.parts.append(data)


@implementer(IResponse)
class Response:
    """An answer that is there already.

    :param body: its body, not compressed.
    """

    version = (b"HTTP", 1, 1)
    request = None
    previousResponse: IResponse | None = None

    def __init__(self, answer: Answer, body: bytes) -> None:
        self.code = answer.status
        self.phrase = RESPONSES.get(answer.status, b"")
        self.length = len(body)
        self.headers = Headers()
        for name, value in answer.fields:
            self.headers.addRawHeader(name, value.strip())
        if content_coding(answer.fields):
            self.headers.removeHeader(b"content-encoding")
        self._body = body

    def deliverBody(self, protocol: IProtocol) -> None:
        protocol.dataReceived(self._body)
        protocol.connectionLost(Failure(ResponseDone()))

    def setPreviousResponse(self, previousResponse: IResponse) -> None:
        self.previousResponse = previousResponse
