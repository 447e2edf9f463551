"""Opens connections to addresses that the guard has judged."""

from __future__ import annotations

from errno import EADDRNOTAVAIL, ECONNREFUSED, EMFILE, ENFILE, ENOBUFS, ENOMEM
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IConnector, IProtocol
from twisted.internet.protocol import ClientFactory, Factory
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure

from rsscloud_broker.errors import CallsUnavailable, OutboundError
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Http1, NotConnected

#: Errors of the operating system that say nothing about the other side: this machine has no
#: file descriptors, buffers, memory or ports left.
OUR_OWN_WANT = frozenset({EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM})

#: With an IPv6 address EADDRNOTAVAIL means that this machine has no IPv6.
_WANT_OVER_IPV6 = OUR_OWN_WANT - {EADDRNOTAVAIL}


class Connector:
    """Opens the TCP connections of ``Http1``, with TLS where they need it."""

    def __init__(self, reactor: Any, guard: AddressGuard) -> None:
        self._reactor = reactor
        self._guard = guard

    def connect(self, connection: Http1, address: str, timeout: float | None) -> None:
        """Connect to an address.  The connection is notified whether that succeeded.

        :param address: an IPv4 or IPv6 address, which the guard has judged.
        :param timeout: the seconds until the attempt is given up; None for never.
        """
        factory = _OneConnection(self._reactor, self._guard, connection, address)
        connection.attempt = self._reactor.connectTCP(
            address, connection.origin[2], factory, timeout
        )


class _OneConnection(ClientFactory):
    """Tells an ``Http1`` what became of the attempt to connect it."""

    noisy = False
    _connector: Any = None

    def __init__(self, reactor: Any, guard: AddressGuard, connection: Http1, address: str) -> None:
        self._reactor = reactor
        self._guard = guard
        self._connection = connection
        self._address = address

    def startedConnecting(self, connector: IConnector) -> None:
        self._connector = connector

    def buildProtocol(  # type: ignore[override] # connections of TCP have such addresses only
        self, addr: IPv4Address | IPv6Address
    ) -> IProtocol | None:
        """The protocol of the connection; None if it reached an address that is not allowed."""
        connection, host = self._connection, addr.host
        try:
            if self._connector is not None:  # Twisted passes the address that it was to connect to
                host = self._connector.transport.getHandle().getpeername()[0]
            if host != self._address:  # it is spelled in another way, or another address
                self._guard.check(host, addr.port)
        except OutboundError as refusal:
            connection.fail(refusal)
            return None
        except OSError as problem:  # it was connected, and has been lost already
            connection.fail(_refusal(problem, self._address))
            return None
        if connection.tls is None:
            return connection
        tls = TLSMemoryBIOFactory(connection.tls, True, Factory(), self._reactor)
        return TLSMemoryBIOProtocol(tls, connection)

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self._connection.fail(_refusal(reason.value, self._address))


def _refusal(problem: BaseException | None, address: str) -> NotConnected | CallsUnavailable:
    """What an error in connecting to an address means for the request."""
    number = problem.errno if isinstance(problem, OSError) else getattr(problem, "osError", None)
    text = " ".join(str(problem).split())
    if number in (_WANT_OVER_IPV6 if ":" in address else OUR_OWN_WANT):
        return CallsUnavailable(f"no connection can be made just now: {text}")
    return NotConnected(text, port_only=number == ECONNREFUSED)
