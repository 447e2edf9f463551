"""One request to one host, and its answer, over a connection that the guard allows.

A name is looked up once, every address that it has is judged, and the connection
goes to a judged address and not to the name: a name server that gives another
answer a moment later changes nothing.  The host name remains what the server is
asked for and what its certificate must show.  A connection is kept for a moment in
case there is more for the same host.
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
from rsscloud_broker.outbound.http1 import Answer, Http1, Message, NotConnected
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.urls import Target
from rsscloud_broker.urls import is_address


class PendingRequest:
    """Who waits for something, and can be told to stop.

    So a request costs no Deferred of its own, which would be there to be cancelled
    only.

    :ivar waits_for: what is waited for now.
    :ivar late: whether the time for it has passed.
    """

    __slots__ = ("late", "waits_for")

    waits_for: Deferred[Any]

    def __init__(self) -> None:
        self.late = False

    def timed_out(self) -> None:
        """The time has passed."""
        self.late = True
        self.waits_for.cancel()


class HTTPExchanger:
    """Makes guarded exchanges.  How long one takes is for others to watch.

    :param resolve: looks names up.
    :param seconds: that an exchange may take; they are shared among the addresses
        of a host, so that one that swallows what is sent to it does not take all.
    :ivar make_body: makes what takes the body of an answer.
    :param budget: that of answers under way.
    :param idle_limit: connections that are kept in all.
    :param idle_seconds: for how long one is kept.
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

    def close(self) -> None:
        """Close the connections that are kept."""
        self._idle.close()

    def call_anew(self) -> None:
        """Use no connection again that was made until now; what is under way goes on.

        The guard may judge otherwise by now, and the body of an answer be taken in another way.
        """
        self._idle.close()
        self._idle = self._make_idle()

    async def request(self, waiting: PendingRequest, target: Target, message: Message) -> Answer:
        """Make an exchange.

        :param waiting: is told what this waits for; cancelling that ends it.
        :raises OutboundError: there was no answer.
        :raises Unavailable: no connection can be made, for want of our own means.
        """
        kept = self._idle
        idle = kept.take(target.origin)
        if idle is not None:
            waiting.waits_for = asking = idle.ask(message)
            try:
                return self._keep(idle, await asking, kept)
            except OutboundError:
                if idle.heard:
                    raise
                # The other side closed it just when we wrote: a new one, then.
        addresses: Sequence[str] = (target.host,)
        if not is_address(target.host):
            waiting.waits_for = looking = Deferred.fromCoroutine(self._look_up(target.host))
            addresses = await looking
        for address in addresses:  # before connecting to any: one bad address spoils them all
            self._guard.check(address, target.port)
        problem = OutboundError(f"the name {target.host} has no address")
        refused = True
        for number, address in enumerate(addresses, 1):
            # A timer for each attempt but the last, which has all the time that is left.
            timeout = self._seconds / len(addresses) if number < len(addresses) else None
            tls = self._tls.to(target.host, target.port) if target.secure else None
            connection = Http1(target.origin, tls, self.make_body, self._budget)
            waiting.waits_for = asking = connection.ask(message)
            try:
                self._connector.connect(connection, address, timeout)
                return self._keep(connection, await asking, kept)
            except NotConnected as error:  # the next address may do
                refused = refused and error.port_only
                reason = f"no connection to {address} port {target.port}: {error}"
                problem = OutboundError(reason, port_only=refused)
        raise problem

    def _keep(self, connection: Http1, answer: Answer, kept: IdleConnections) -> Answer:
        """Pass an answer on; see what becomes of the connection.

        :param kept: the connections that were kept when the exchange began.
        """
        if connection.tls is not None:
            connection.tls.keep_session(connection.transport.getHandle())
        if connection.reusable and kept is self._idle:
            kept.give(connection)
        elif not connection.gone:
            connection.close()
        return answer

    async def _look_up(self, host: str) -> Sequence[str]:
        try:
            return await self._resolve(host)
        except (OSError, UnicodeError) as error:
            raise OutboundError(f"the name {host} does not resolve: {error}") from error
