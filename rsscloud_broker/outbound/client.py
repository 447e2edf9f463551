"""Guarded HTTP requests, each under one deadline and with a bounded answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol as TypingProtocol
from urllib.parse import urljoin

from treq.client import HTTPClient
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeadlineError
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
from twisted.web.iweb import IAgent, IResponse
from zope.interface import implementer

from rsscloud_broker.interfaces import IOutbound, OutboundReply
from rsscloud_broker.model import OutboundError
from rsscloud_broker.outbound.guard import check_url

_REDIRECTS = frozenset({301, 302, 307, 308})


class _Transport(TypingProtocol):
    def loseConnection(self) -> None: ...


class _BodyReader(Protocol):
    """Collects a body up to a limit, and closes the connection beyond it."""

    transport: _Transport  # type: ignore[assignment] # what deliverBody gives is less than an ITransport

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.parts: list[bytes] = []
        self.done: Deferred[None] = Deferred(lambda d: self.transport.loseConnection())

    def dataReceived(self, data: bytes) -> None:
        if self.done.called:
            return
        self.parts.append(data)
        self.size += len(data)
        if self.size > self.limit:
            self.done.callback(None)
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):  # the latter: HTTP/1.0, read to its end
            self.done.callback(None)
        else:
            self.done.errback(reason)


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
        self._client = HTTPClient(agent)
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
        exchange = Deferred.fromCoroutine(
            self._follow(
                method, url, {"user-agent": self._user_agent, **(headers or {})}, body, redirects
            )
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
            url = urljoin(url, location)

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> OutboundReply:
        check_url(url)
        response = await self._client.request(
            method,
            url,
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
            body=await self._body(response),
            url=url,
        )

    async def _body(self, response: IResponse) -> bytes:
        reader = _BodyReader(self._body_limit)
        response.deliverBody(reader)
        await reader.done
        body = b"".join(reader.parts)
        if len(body) <= self._body_limit:
            return body
        if self._truncate:
            return body[: self._body_limit]
        raise OutboundError(f"the answer is larger than {self._body_limit} bytes")


def _reason(error: Exception) -> str:
    """Say in one line what went wrong inside Twisted's client."""
    if isinstance(error, ResponseFailed | RequestGenerationFailed | ResponseNeverReceived):
        return "; ".join(_reason(reason.value) for reason in error.reasons)
    text = " ".join(str(error).split())
    return text or type(error).__name__
