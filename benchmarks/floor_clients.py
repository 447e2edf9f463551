"""The floor of notifications: a bare Twisted loop that connects, writes, reads a status, closes.

It stores nothing, looks up no names, checks no addresses and retries nothing.  Over TLS it uses one
context for all connections, which checks the authority's signature but not the host's name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from OpenSSL import SSL
from twisted.internet import reactor as global_reactor
from twisted.internet.interfaces import IConnector, IOpenSSLClientConnectionCreator
from twisted.internet.protocol import ClientFactory, Protocol, connectionDone
from twisted.internet.ssl import Certificate, CertificateOptions, trustRootFromCertificates
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from benchmarks import control
from benchmarks.addresses import address

#: Typed as Any: it provides IReactorTCP and more.
reactor: Any = global_reactor


@implementer(IOpenSSLClientConnectionCreator)
class _Shared:
    """Creates all TLS connections from one context."""

    def __init__(self, authority: str) -> None:
        trusted = [Certificate.loadPEM(Path(authority).read_bytes())]
        options = CertificateOptions(trustRoot=trustRootFromCertificates(trusted))
        self._context = options.getContext()

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        return SSL.Connection(self._context, None)


class _Post(Protocol):
    """One notification."""

    factory: _Posts
    _status = b""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self.factory.request)

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self._status += data
        if b"\r\n" in self._status:
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.loop.done(self._status.startswith(b"HTTP/1.1 2"))


class _Posts(ClientFactory[_Post]):
    """The factory of one notification."""

    protocol = _Post
    noisy = False

    def __init__(self, loop: Loop, request: bytes) -> None:
        self.loop = loop
        self.request = request

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self.loop.done(False)


class Loop:
    """Notifies all subscribers, a limited number at the same time.

    :param port: the port of all callbacks.
    :param first: the number of the first subscriber.
    :param count: how many subscribers there are.
    :param concurrency: how many are notified at the same time.
    :param headers: the header lines of each request, but for those that every request has.
    :param body: the body of each request.
    :param authority: the file of the trusted authority, for TLS; None for plain HTTP.
    :param step: the difference between the numbers of two subscribers.
    """

    def __init__(
        self,
        port: int,
        first: int,
        count: int,
        concurrency: int,
        headers: str,
        body: str,
        authority: str | None,
        step: int = 1,
    ) -> None:
        self._port = port
        self._numbers = iter(range(first, first + count * step, step))
        self._concurrency = concurrency
        self._headers = headers
        self._body = body.encode("ascii")
        self._shared = _Shared(authority) if authority else None
        self._busy = 0
        self.delivered = 0

    def start(self) -> None:
        for number in self._take(self._concurrency):
            self._notify(number)

    def done(self, delivered: bool) -> None:
        """Count a notification that has ended, and begin the next."""
        self.delivered += delivered
        self._busy -= 1
        for number in self._take(1):
            self._notify(number)
        if not self._busy:
            reactor.stop()

    def _take(self, most: int) -> Iterator[int]:
        for _, number in zip(range(most), self._numbers, strict=False):
            yield number

    def _notify(self, number: int) -> None:
        self._busy += 1
        host = address(number)
        request = (
            f"POST /n/{number} HTTP/1.1\r\nHost: {host}:{self._port}\r\nConnection: close\r\n"
            f"User-Agent: floor/1\r\n{self._headers}"
            f"Content-Length: {len(self._body)}\r\n\r\n"
        ).encode("ascii") + self._body
        factory: Any = _Posts(self, request)
        if self._shared is not None:
            factory = TLSMemoryBIOFactory(self._shared, True, factory)
        reactor.connectTCP(host, self._port, factory)


def main() -> None:
    """Run the loop when the benchmark says so."""
    loop = Loop(**control.arguments())
    control.answer()
    if next(control.questions(), None):
        reactor.callWhenRunning(loop.start)
        reactor.run()
        control.answer(delivered=loop.delivered, ended=time.monotonic())


if __name__ == "__main__":
    main()
