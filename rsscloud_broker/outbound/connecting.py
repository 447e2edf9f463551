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
OUR_OWN_LACK = frozenset({EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM})

#: With an IPv6 address EADDRNOTAVAIL means that this machine has no IPv6.
_LACK_OVER_IPV6 = OUR_OWN_LACK - {EADDRNOTAVAIL}


class OneConnection(ClientFactory):
    """Gives an ``Http1`` its connection, after a check of the address; else fails its request.

    :param connection: gets the connection, with TLS if it needs that.
    :param address: an IPv4 or IPv6 address, which the guard has judged.
    :ivar _connector: Twisted's connector; None until Twisted has begun to connect.
    """

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
        """Check the address that was really reached; return the protocol, with TLS if the request
        needs it.  None ends the connection; then the request has failed already.
        """
        connection, host = self._connection, addr.host
        try:
            if self._connector is not None:  # Twisted passes the address that it was to connect to
                host = self._connector.transport.getHandle().getpeername()[0]
            if host != self._address:  # another address, or another spelling of the same one
                self._guard.check(host, addr.port)
        except OutboundError as refusal:
            connection.fail(refusal)
            return None
        except OSError as problem:  # it was connected, and has been lost already
            connection.fail(_request_error(problem, self._address))
            return None
        if connection.tls is None:
            return connection
        tls = TLSMemoryBIOFactory(connection.tls, True, Factory(), self._reactor)
        return TLSMemoryBIOProtocol(tls, connection)

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        self._connection.fail(_request_error(reason.value, self._address))


def _request_error(problem: BaseException | None, address: str) -> NotConnected | CallsUnavailable:
    """The error for the request if connecting failed: ``CallsUnavailable`` if the cause is a lack
    of this machine's, else ``NotConnected``.
    """
    number = problem.errno if isinstance(problem, OSError) else getattr(problem, "osError", None)
    text = " ".join(str(problem).split())
    if number in (_LACK_OVER_IPV6 if ":" in address else OUR_OWN_LACK):
        return CallsUnavailable(f"no connection can be made just now: {text}")
    return NotConnected(text, port_only=number == ECONNREFUSED)
