"""Guarded HTTP requests, each under one deadline and with a bounded answer."""

from __future__ import annotations

import zlib
from collections.abc import Coroutine, Mapping
from typing import Any
from typing import Protocol as TypingProtocol

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeadlineError
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import (
    RequestGenerationFailed,
    ResponseDone,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from rsscloud_broker.interfaces import IOutbound, OutboundReply
from rsscloud_broker.model import OutboundError
from rsscloud_broker.outbound.urls import LiteralURL, check_url, redirected

#: Tells zlib to expect a gzip header.
GZIP = zlib.MAX_WBITS + 16

_REDIRECTS = frozenset({301, 302, 307, 308})


class _Transport(TypingProtocol):
    def loseConnection(self) -> None: ...


class _BodyReader(Protocol):
    """Collects a body up to a limit, and closes the connection beyond it.

    :param packed: whether the body is gzipped; the limit is one of what it holds.
    """

    transport: _Transport  # type: ignore[assignment] # what deliverBody gives is less than an ITransport

    def __init__(self, limit: int, packed: bool) -> None:
        self.limit = limit
        self.size = 0
        self.parts: list[bytes] = []
        self.done: Deferred[None] = Deferred(lambda d: self.transport.loseConnection())
        self._gzip = zlib.decompressobj(wbits=GZIP) if packed else None

    def dataReceived(self, data: bytes) -> None:
        if self.done.called:
            return
        try:
            data = self._unpacked(data)
        except zlib.error as error:
            self.done.errback(OutboundError(f"the answer cannot be decompressed: {error}"))
            self.transport.loseConnection()
            return
        self.parts.append(data)
        self.size += len(data)
        if self.size > self.limit:
            self.done.callback(None)
            self.transport.loseConnection()

    def _unpacked(self, data: bytes) -> bytes:
        if self._gzip is None:
            return data
        # No more than is needed to see that it is too much.
        return self._gzip.decompress(data, self.limit - self.size + 1)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.done.called:
            return
        if not reason.check(ResponseDone, PotentialDataLoss):  # the latter: HTTP/1.0, to its end
            self.done.errback(reason)
        elif self._gzip is not None and self.parts and not self._gzip.eof:
            self.done.errback(OutboundError("the answer breaks off"))
        else:
            self.done.callback(None)


@implementer(IAgent)
class _Exchange:
    """The agent of one request: keeps treq from decompressing the answer.

    treq undoes as many layers as there are, so that a few kilobytes become more
    than fits into memory before anybody can count.

    :ivar packed: whether the body of the answer is gzipped.
    """

    def __init__(self, agent: IAgent) -> None:
        self.packed = False
        self._agent = agent

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        response: Deferred[IResponse] = self._agent.request(method, uri, headers, bodyProducer)
        return response.addCallback(self._take_encoding)

    def _take_encoding(self, response: IResponse) -> IResponse:
        codings = b",".join(response.headers.getRawHeaders(b"content-encoding", [])).lower()
        if b"," in codings:
            raise OutboundError("the answer is compressed more than once")
        self.packed = codings.strip() in {b"gzip", b"x-gzip"}
        if self.packed:
            response.headers.removeHeader(b"content-encoding")
        return response


@implementer(IOutbound)
class Outbound:
    """An HTTP client for the URLs of strangers.

    :param agent: makes the connections; it holds the guard.
    :param deadline: seconds for a whole exchange: name, connection, TLS, request,
        headers, body and every redirect.
    :param body_limit: bytes of an answer that are read, after decompression.
    :param truncate: whether a longer answer is cut off there; otherwise it is an
        error.
    """

    def __init__(
        self,
        agent: IAgent,
        clock: IReactorTime,
        *,
        user_agent: str,
        deadline: float,
        body_limit: int,
        truncate: bool = False,
    ) -> None:
        self._agent = agent
        self._clock = clock
        self._user_agent = user_agent
        self._deadline = deadline
        self._body_limit = body_limit
        self._truncate = truncate

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        redirects: int = 0,
    ) -> OutboundReply:
        headers = {"user-agent": self._user_agent, **(headers or {})}
        exchange = Deferred.fromCoroutine(
            self._until_cancelled(self._follow(method, url, headers, body, redirects))
        )
        exchange.addTimeout(self._deadline, self._clock)
        try:
            return await exchange
        except OutboundError:
            raise
        except DeadlineError as error:
            raise OutboundError(f"no whole answer within {self._deadline:g} seconds") from error
        except CancelledError:
            raise
        except Exception as error:  # every way in which a stranger's server can fail
            raise OutboundError(_reason(error)) from error

    async def _until_cancelled(self, exchange: Coroutine[Any, Any, OutboundReply]) -> OutboundReply:
        """The reply; being cancelled is CancelledError, whatever Twisted's client makes of it."""
        try:
            return await exchange
        except Exception as error:
            if _was_cancelled(error):
                raise CancelledError from error
            raise

    async def _follow(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, redirects: int
    ) -> OutboundReply:
        while True:
            reply = await self._exchange(method, url, headers, body)
            follows = reply.status in _REDIRECTS or (reply.status == 303 and method == "GET")
            location = reply.headers.get("location")
            if not (follows and location and redirects):
                return reply
            redirects -= 1
            url = redirected(url, location)

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> OutboundReply:
        check_url(url)
        exchange = _Exchange(self._agent)
        client = HTTPClient(exchange)  # a new one, for it keeps every cookie it is given
        response = await client.request(
            method,
            LiteralURL.from_text(url),
            headers=Headers({name: [value] for name, value in headers.items()}),
            data=body or None,
            allow_redirects=False,
            unbuffered=True,
        )
        return OutboundReply(
            status=response.code,
            headers={
                name.decode("latin-1").lower(): values[-1].decode("latin-1")
                for name, values in response.headers.getAllRawHeaders()
            },
            body=await self._body(response, exchange.packed),
            url=url,
        )

    async def _body(self, response: IResponse, packed: bool) -> bytes:
        reader = _BodyReader(self._body_limit, packed)
        response.deliverBody(reader)
        await reader.done
        body = b"".join(reader.parts)
        if len(body) <= self._body_limit:
            return body
        if self._truncate:
            return body[: self._body_limit]
        raise OutboundError(f"the answer is larger than {self._body_limit} bytes")


def _was_cancelled(error: BaseException) -> bool:
    if isinstance(error, ResponseFailed | RequestGenerationFailed | ResponseNeverReceived):
        return any(_was_cancelled(reason.value) for reason in error.reasons)
    return isinstance(error, CancelledError | ConnectingCancelledError)


def _reason(error: Exception) -> str:
    """Say in one line what went wrong inside Twisted's client."""
    if isinstance(error, ResponseFailed | RequestGenerationFailed | ResponseNeverReceived):
        return "; ".join(_reason(reason.value) for reason in error.reasons)
    text = " ".join(str(error).split())
    return text or type(error).__name__
