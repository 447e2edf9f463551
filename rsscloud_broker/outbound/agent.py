"""An implementation of Twisted's ``IAgent`` over guarded exchanges; ``TopicClient`` gives it to
treq.

The agent reads an answer whole, limits its size and decompresses it before it returns the
response, so its callers need not.
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import Any

from attrs import define
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IProtocol
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import RESPONSES
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from rsscloud_broker.outbound.decoding import BodyDecoder, content_coding
from rsscloud_broker.outbound.exchanges import HTTPExchanger
from rsscloud_broker.outbound.http1 import HTTPAnswer, message
from rsscloud_broker.outbound.urls import target_of
from rsscloud_broker.util.deferreds import from_callback, returns_deferred
from rsscloud_broker.wire.codings import ACCEPTED

#: Headers that the agent sets; a caller's values are ignored.
_SET_BY_AGENT = frozenset({b"host", b"content-length", b"accept-encoding", b"connection"})


@implementer(IAgent)
@define(eq=False)
class GuardedAgent:
    """Makes HTTP requests through a guarded exchanger.

    :param exchanger: makes the requests; it must collect bodies by ``WholeBody``, since a truncated
        one cannot be decoded.
    :param decoder: undoes the content codings of answers.
    """

    _exchanger: HTTPExchanger
    _decoder: BodyDecoder

    @returns_deferred
    async def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> IResponse:
        """Make a request, with its whole body in memory, and decode the answer.

        The Deferred fails with OutboundError if there is no answer.

        :param headers: if a name has several values, the last one is sent.
        """
        target = target_of(uri.decode("ascii"))
        body: Any = BytesIO()  # of a consumer it has ``write``, all that treq's producers call
        if bodyProducer is not None:
            await maybeDeferred(bodyProducer.startProducing, body)
        sent = {
            name.decode("ascii").lower(): values[-1].decode("utf-8", "surrogateescape")
            for name, values in (headers or Headers()).getAllRawHeaders()
            if name.lower() not in _SET_BY_AGENT
        }
        sent["accept-encoding"] = ACCEPTED
        request = message(method.decode("ascii"), target, sent, body.getvalue())
        answer = await from_callback(partial(self._exchanger.begin, target, request))
        return Response(answer, await self._decoder.decode(answer))


@implementer(IResponse)
class Response:
    """A response whose body has arrived already.

    :param answer: status and header fields.
    :param body: the body, decompressed.
    :ivar compressed: whether the body was compressed on its way.
    """

    version = (b"HTTP", 1, 1)
    request = None
    previousResponse: IResponse | None = None

    def __init__(self, answer: HTTPAnswer, body: bytes) -> None:
        self.code = answer.status
        self.phrase = RESPONSES.get(answer.status, b"")
        self.length = len(body)
        self.headers = Headers()
        for name, value in answer.fields:
            self.headers.addRawHeader(name, value.strip())
        self.compressed = bool(content_coding(answer.fields))
        if self.compressed:
            self.headers.removeHeader(b"content-encoding")
        self._body = body

    def deliverBody(self, protocol: IProtocol) -> None:
        protocol.dataReceived(self._body)
        protocol.connectionLost(Failure(ResponseDone()))

    def setPreviousResponse(self, previousResponse: IResponse) -> None:
        self.previousResponse = previousResponse
