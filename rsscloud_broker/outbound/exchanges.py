"""Makes one HTTP request to one host and reads its answer, over a connection the guard allows.

The exchanger looks a host name up once, has the guard check every address, and connects to one of
these addresses.  The name is not looked up again, so a name server that gives another answer a
moment later changes nothing.  The Host header and the check of the certificate still use the host
name.  A connection is kept for a moment, for further requests to the same host.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.outbound.bodies import BodyMaker
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.connecting import Connector
from rsscloud_broker.outbound.connections import IdleConnections
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Http1, HTTPAnswer, Message, NotConnected
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.urls import Target
from rsscloud_broker.util.urls import is_address


class PendingRequest:
    """A request under way, which its deadline can cancel.

    It saves the request a Deferred of its own, which would only be there to be cancelled.

    :ivar waits_for: the Deferred that the request waits for now.
    :ivar late: whether the deadline has passed.
    """

    __slots__ = ("late", "waits_for")

    waits_for: Deferred[Any]

    def __init__(self) -> None:
        self.late = False

    def timed_out(self) -> None:
        """Cancel the request, because its deadline has passed."""
        self.late = True
        self.waits_for.cancel()


class HTTPExchanger:
    """Makes guarded HTTP exchanges.  The caller enforces the deadline.

    :param resolve: looks host names up.
    :param seconds: the deadline of an exchange.  It is divided among the addresses of a host, so
        that an address which does not answer leaves time for the others.
    :ivar make_body: makes the object that collects the body of an answer.
    :param budget: counts the answers in memory.
    :param idle_limit: how many idle connections are kept in total.
    :param idle_seconds: for how long an idle connection is kept.
    """

    def __init__(
        self,
        reactor: Any,
        resolve: Resolve,
        guard: AddressGuard,
        tls: TLSContext,
        *,
        seconds: float,
        make_body: BodyMaker,
        budget: AnswerBudget,
        idle_limit: int = 100,
        idle_seconds: float = 2.0,
    ) -> None:
        self._connector = Connector(reactor, guard)
        self._resolve = resolve
        self._guard = guard
        self._tls = tls
        self._seconds = seconds
        self.make_body = make_body
        self._budget = budget
        self._make_idle = partial(IdleConnections, reactor, idle_limit, idle_seconds)
        self._idle = self._make_idle()

    @property
    def idle(self) -> int:
        """How many idle connections are kept."""
        return len(self._idle)

    def close(self) -> None:
        """Close the idle connections."""
        self._idle.close()

    def call_anew(self) -> None:
        """Do not use existing connections for further requests; requests under way go on.

        A caller that changes the guard's networks or ``make_body`` calls this.
        """
        self._idle.close()
        self._idle = self._make_idle()

    async def request(
        self, pending: PendingRequest, target: Target, message: Message
    ) -> HTTPAnswer:
        """Make an exchange.

        :param pending: this method sets its ``waits_for``; cancelling that ends the exchange.
        :raises OutboundError: there was no answer.
        :raises AddressRefused: the guard refuses one of the host's addresses.
        :raises Unavailable: the broker cannot connect for lack of its own means, such as file
            descriptors.
        """
        connections = self._idle
        idle = connections.take(target.origin)
        if idle is not None:
            pending.waits_for = answering = idle.request(message)
            try:
                return self._finish(idle, await answering, connections)
            except OutboundError:
                if idle.heard:
                    raise
                # The server closed the idle connection meanwhile: make a new one.
        addresses: Sequence[str] = (target.host,)
        if not is_address(target.host):
            addresses = await self._look_up(pending, target.host)
        for address in addresses:  # check all of them first: a refused one rules out the host
            self._guard.check(address, target.port)
        problem = OutboundError(f"the name {target.host} has no address")
        refused = True
        for number, address in enumerate(addresses, 1):
            # Each attempt but the last has a time limit; the last has the time that is left.
            timeout = self._seconds / len(addresses) if number < len(addresses) else None
            tls = self._tls.to(target.host, target.port) if target.secure else None
            connection = Http1(target.origin, tls, self.make_body, self._budget)
            pending.waits_for = answering = connection.request(message)
            try:
                self._connector.connect(connection, address, timeout)
                return self._finish(connection, await answering, connections)
            except NotConnected as error:  # try the next address
                refused = refused and error.port_only
                reason = f"no connection to {address} port {target.port}: {error}"
                problem = OutboundError(reason, port_only=refused)
        raise problem

    def _finish(
        self, connection: Http1, answer: HTTPAnswer, connections: IdleConnections
    ) -> HTTPAnswer:
        """Keep the connection for further requests, or close it; return the answer.

        :param connections: the idle connections when the exchange began.
        """
        if connection.tls is not None:
            connection.tls.keep_session(connection.transport.getHandle())
        if connection.reusable and connections is self._idle:
            connections.give(connection)
        elif not connection.gone:
            connection.close()
        return answer

    async def _look_up(self, pending: PendingRequest, host: str) -> Sequence[str]:
        try:
            pending.waits_for = looking = self._resolve(host)
            return await looking
        except (OSError, UnicodeError) as error:
            raise OutboundError(f"the name {host} does not resolve: {error}") from error
