"""The outbound client of commands: it calls any address that its user gives.

Unlike ``outbound`` it has no address guard: a command may call the user's own machine, too.  A
follower makes very many requests.  So this client uses Twisted's agent without treq, which takes
each URL apart and keeps cookies, and needs half the time.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, NoReturn

from attrs import define, evolve, frozen
from hyperlink import EncodedURL
from OpenSSL.crypto import Error as NoCertificate
from OpenSSL.SSL import Error as SSLError
from service_identity import VerificationError
from treq import collect
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.internet.interfaces import IConsumer
from twisted.internet.ssl import Certificate, trustRootFromCertificates
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    BrowserLikePolicyForHTTPS,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseFailed,
)
from twisted.web.error import SchemeNotSupported
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer
from zope.interface import implementer

from rsscloud_broker import __version__
from rsscloud_broker.client.feed_requests import FeedAnswer
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IClock, IOutbound, OutboundReply, OutboundRequest
from rsscloud_broker.outbound.bodies import too_large
from rsscloud_broker.outbound.decoding import content_coding, decoded
from rsscloud_broker.wire.codings import ACCEPTED

_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", flags=re.DOTALL
)

#: Seconds to wait for a connection.
CONNECT_TIMEOUT: Final = 10

#: How many seconds an exchange may take, and how many bytes of an answer are read.
SECONDS, MAX_BYTES = 30.0, 10 * 1024 * 1024

USER_AGENT: Final = f"rsscloud-broker/{__version__}"


def make_agent(reactor: Any, file: str | None, pool: HTTPConnectionPool | None = None) -> Agent:
    """Make an agent that checks the certificates of servers.

    :param file: a file with the only certificates to trust, in PEM; None to trust those that
        OpenSSL trusts.
    :param pool: keeps connections for further requests; None to close each.
    :raises ClientError: the file holds no certificate.
    """
    if file is None:
        return Agent(reactor, connectTimeout=CONNECT_TIMEOUT, pool=pool)
    blocks = _PEM.findall(Path(file).read_bytes())
    try:
        certificates = [Certificate.loadPEM(block) for block in blocks]
    except NoCertificate:
        certificates = []
    if not certificates:
        raise ClientError(f"{file}: the file holds no certificate in PEM")
    policy = BrowserLikePolicyForHTTPS(trustRootFromCertificates(certificates))
    return Agent(reactor, policy, connectTimeout=CONNECT_TIMEOUT, pool=pool)


@implementer(IBodyProducer)
@frozen
class _RequestBody:
    """The body of a request, which is in memory."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self.data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """There is nothing to pause: all has been written."""

    def resumeProducing(self) -> None:
        """Nothing was paused."""

    def stopProducing(self) -> None:
        """There is nothing to stop: all has been written."""


@implementer(IOutbound)
@define(eq=False)
class AnyAddress:
    """Implements ``IOutbound`` without the address guard of the broker, and without signatures.

    :param seconds: how long an exchange may take, from the look-up of the name to the last byte.
    :param max_bytes: the largest body that is read, after decompression.
    """

    _agent: IAgent
    _clock: IClock
    _seconds: float = SECONDS
    _max_bytes: int = MAX_BYTES

    async def request(self, request: OutboundRequest) -> OutboundReply:
        """Make a request, and follow as many redirects as it allows."""
        if request.signing:
            raise ValueError("this client signs nothing")
        hops: list[tuple[int, str]] = []
        while True:
            reply = await self._wait_in_time(self._exchange(request))
            target = FeedAnswer(request.url, reply.status, reply.headers).target
            if not target or len(hops) >= request.redirects:
                return evolve(reply, hops=tuple(hops))
            hops.append((reply.status, target))
            request = evolve(request, url=target)

    async def _wait_in_time(self, exchange: Coroutine[Any, Any, OutboundReply]) -> OutboundReply:
        """Wait for an exchange until the deadline.

        :raises OutboundError: the exchange failed, or the deadline has passed.
        """

        def timed_out(_: object, seconds: float) -> NoReturn:
            # Replaces whatever error the cancelled exchange raised.
            raise OutboundError(f"no answer within {seconds:g} seconds")

        waiting = Deferred.fromCoroutine(exchange)
        try:
            return await waiting.addTimeout(self._seconds, self._clock, timed_out)
        except (ResponseFailed, RequestTransmissionFailed) as error:
            # RequestTransmissionFailed: the TLS handshake failed while a body was being sent.
            reasons = ", ".join(dict.fromkeys(map(_reason, error.reasons)))
            raise OutboundError(reasons) from error
        except (ConnectError, ConnectionClosed, SchemeNotSupported, OSError, ValueError) as error:
            # ValueError: the URL is invalid.  OSError: among others, DNS failed.
            raise OutboundError(str(error)) from error

    async def _exchange(self, request: OutboundRequest) -> OutboundReply:
        """Send one request, without following a redirect."""
        url = request.url
        sent = Headers({"User-Agent": [USER_AGENT], "Accept-Encoding": [ACCEPTED]})
        for name, text in request.headers.items():
            sent.setRawHeaders(name, [text])
        ascii_url = url if url.isascii() else EncodedURL.from_text(url).to_uri().to_text()
        posted = _RequestBody(request.body) if request.body else None
        response: Any = await self._agent.request(
            request.method.encode("ascii"), ascii_url.encode("ascii"), sent, posted
        )
        headers = list(response.headers.getAllRawHeaders())
        coding = content_coding([(name, line) for name, lines in headers for line in lines])
        content = bytearray()

        def add(data: bytes) -> None:
            content.extend(data)
            if len(content) > self._max_bytes:
                raise too_large(self._max_bytes)

        await collect(response, add)
        body = bytes(content)
        if coding and body:  # the answer to a HEAD has no body
            body = decoded(coding, body, self._max_bytes)
        received = {
            name.decode("latin-1").lower(): ", ".join(line.decode("latin-1") for line in lines)
            for name, lines in headers
        }
        return OutboundReply(response.code, received, body, url, (), bool(coding))


def _reason(failure: Failure) -> str:
    """Why there was no answer, for people."""
    error = failure.value
    if isinstance(error, VerificationError):
        return "its certificate is for another name"
    if isinstance(error, SSLError):
        reasons = ", ".join(dict.fromkeys(words[-1] for words in error.args[0] if words[-1]))
        if "certificate" in reasons:
            reasons += " (--cacert names a file with certificates to trust)"
        return f"TLS failed: {reasons or 'the other side hung up'}"
    return failure.getErrorMessage()
