"""Makes one HTTP request to one host and reads its answer, over a connection the guard allows.

The exchanger looks a host name up once, has the guard check every address, and connects to one of
these addresses.  The name is not looked up again, so a name server that gives another answer a
moment later changes nothing.  The Host header and the check of the certificate still use the host
name.  A connection is kept for a moment, for further requests to the same host.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.outbound.bodies import BodyMaker
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.connecting import OneConnection
from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Http1, HTTPAnswer, Message, NotConnected, Origin
from rsscloud_broker.outbound.resolver import Resolve
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.urls import Target
from rsscloud_broker.util.deferreds import BreakOff, Done
from rsscloud_broker.util.urls import is_address


class IdleConnections(Expiry[Http1]):
    """Idle connections, by host.  ``HTTPExchanger`` gives and takes them.

    :param limit: how many connections are kept.  When there are more, a fourth of them are
        closed together, the longest idle first.
    :param seconds: for how long a connection is kept.
    """

    def __init__(self, clock: IReactorTime, limit: int, seconds: float) -> None:
        super().__init__(clock, seconds, self._close)
        self._limit = limit
        self._by_origin: dict[Origin, list[Http1]] = {}

    def take(self, origin: Origin) -> Http1 | None:
        """Remove and return the idle connection to a host that was used last; None if none."""
        if origin not in self._by_origin:
            return None
        connection = self._by_origin[origin][-1]
        self._forget(connection)
        return connection

    def give(self, connection: Http1) -> None:
        """Keep a connection until it is taken or its time is over."""
        connection.when_lost = self._forget
        self.add(connection)
        self._by_origin.setdefault(connection.origin, []).append(connection)
        if len(self._until) > self._limit:
            for longest_idle in list(islice(self._until, 1 + self._limit // 4)):
                self._close(longest_idle)

    def close(self) -> None:
        """Close all idle connections."""
        for connection in self.clear():
            self._close(connection)

    def _forget(self, connection: Http1) -> None:
        """Take a connection off the idle ones: it is used, lost, or about to be closed."""
        connection.when_lost = None
        self.discard(connection)
        connections = self._by_origin[connection.origin]
        connections.remove(connection)
        if not connections:
            del self._by_origin[connection.origin]

    def _close(self, connection: Http1) -> None:
        self._forget(connection)
        connection.close()


@define(eq=False)
class HTTPExchanger:
    """Makes guarded HTTP exchanges.  The caller enforces the deadline.

    :param resolve: looks host names up.
    :param seconds: the deadline of an exchange.  It is divided among the addresses of a host, so
        that an address which does not answer leaves time for the others.
    :ivar make_body: makes the object that collects the body of an answer.
    :param budget: counts the answers in memory.
    :ivar idle_connections: those that are kept for further requests.
    :param idle_limit: how many idle connections are kept in total.
    :param idle_seconds: for how long an idle connection is kept.
    """

    reactor: Any
    resolve: Resolve
    guard: AddressGuard
    tls: TLSContext
    seconds: float = field(kw_only=True)
    make_body: BodyMaker = field(kw_only=True)
    budget: AnswerBudget = field(kw_only=True)
    _idle_limit: int = field(default=100, kw_only=True)
    _idle_seconds: float = field(default=2.0, kw_only=True)
    idle_connections: IdleConnections = field(init=False)

    @idle_connections.default
    def _no_connections(self) -> IdleConnections:
        return IdleConnections(self.reactor, self._idle_limit, self._idle_seconds)

    def call_anew(self) -> None:
        """Do not use existing connections for further requests; requests under way go on.

        A caller that changes the guard's networks or ``make_body`` calls this.
        """
        self.idle_connections.close()
        self.idle_connections = self._no_connections()

    def begin(self, target: Target, message: Message, done: Done[HTTPAnswer]) -> BreakOff:
        """Begin an exchange.

        :param done: is called once, perhaps before this returns: with the answer; or with

            - OutboundError: there was no answer;
            - AddressRefused: the guard refuses one of the host's addresses;
            - Unavailable: the broker cannot connect, since it has no file descriptors left or the
              like.
        :returns: what ends the exchange.  Then ``done`` is not called.
        """
        exchange = _Exchange(self, target, message, done)
        idle = self.idle_connections.take(exchange.origin)
        if idle is None:
            exchange.look_up()
        else:
            exchange.use(idle)
        return exchange.cancel


class _Exchange:
    """One exchange: over an idle connection, or over a new one to an address of the host."""

    _connection: Http1 | None = None
    _looking: Deferred[Any] | None = None
    _addresses: Sequence[str] = ()
    _tried = 0  # how many of the addresses
    _problem: OutboundError | None = None  # with the address that was tried last

    def __init__(
        self, exchanger: HTTPExchanger, target: Target, message: Message, done: Done[HTTPAnswer]
    ) -> None:
        self._exchanger = exchanger
        self._target = target
        self.origin: Origin = target[:3]
        self._message = message
        self._done: Done[HTTPAnswer] | None = done
        self._connections = exchanger.idle_connections

    def use(self, idle: Http1) -> None:
        """Send the request over an idle connection to the host."""
        self._connection = idle
        idle.request(self._message, self._answered)

    def cancel(self) -> None:
        """End the exchange; nobody is notified."""
        self._done = None
        if self._connection is not None:
            self._connection.cancel()
        elif self._looking is not None:
            self._looking.cancel()

    def _end(self, result: HTTPAnswer | Exception) -> None:
        """Give the caller the result, unless the exchange has ended or was cancelled."""
        done, self._done = self._done, None
        if done is not None:
            done(result)

    def look_up(self) -> None:
        """Look up the addresses of the host, and call one; a host may be an address itself."""
        host = self._target.host
        if is_address(host):
            self._use_addresses((host,))
            return
        try:
            looking: Deferred[Any] = self._exchanger.resolve(host)
        except (OSError, UnicodeError) as error:
            self._fail_look_up(Failure(error))
        else:
            self._looking = looking
            looking.addCallbacks(self._use_addresses, self._fail_look_up)

    def _fail_look_up(self, failure: Failure) -> None:
        """End with an error: the host could not be looked up."""
        self._looking = None
        error: Any = failure.value
        if isinstance(error, OSError | UnicodeError):
            error = OutboundError(f"the name {self._target.host} does not resolve: {error}")
        self._end(error)

    def _use_addresses(self, addresses: Sequence[str]) -> None:
        """Have the guard check the addresses of the host, and connect to the first."""
        self._looking = None
        try:
            for address in addresses:  # all of them first: a refused one rules out the host
                self._exchanger.guard.check(address, self._target.port)
        except Exception as error:
            self._end(error)
        else:
            self._addresses = addresses
            self._try_next()

    def _try_next(self) -> None:
        """Connect to the next address; end with the last problem if none is left."""
        exchanger, target, count = self._exchanger, self._target, len(self._addresses)
        if self._tried == count:
            self._end(self._problem or OutboundError(f"the name {target.host} has no address"))
            return
        address = self._addresses[self._tried]
        self._tried += 1
        # Each attempt but the last has a time limit; the last has the time that is left.
        timeout = exchanger.seconds / count if self._tried < count else None
        tls = exchanger.tls.for_host(target.host, target.port) if target.secure else None
        self._connection = connection = Http1(
            self.origin, tls, exchanger.make_body, exchanger.budget
        )
        connection.request(self._message, self._answered)
        reactor = exchanger.reactor
        factory = OneConnection(reactor, exchanger.guard, connection, address)
        connection.attempt = reactor.connectTCP(address, target.port, factory, timeout)

    def _answered(self, result: HTTPAnswer | Exception) -> None:
        """End with the result, and keep the connection for further requests or close it; or try
        once more if the connection could not be made, or an idle one was of no use.
        """
        connection, self._connection = self._connection, None
        assert connection is not None  # it has called this
        if isinstance(result, HTTPAnswer):
            if connection.tls is not None:
                connection.tls.keep_session(connection.transport.getHandle())
            # After ``call_anew`` the exchanger has another pool, and a connection that was made
            # under the earlier rules is not kept.
            if connection.reusable and self._connections is self._exchanger.idle_connections:
                self._connections.give(connection)
            elif not connection.gone:
                connection.close()
        elif isinstance(result, NotConnected):
            address, port = self._addresses[self._tried - 1], self._target.port
            reason = f"no connection to {address} port {port}: {result}"
            # Only if all addresses refuse the port, it is certain that the host is there.
            port_only = result.port_only and (self._problem is None or self._problem.port_only)
            self._problem = OutboundError(reason, port_only=port_only)
            self._try_next()
            return
        elif not self._tried and not connection.heard and isinstance(result, OutboundError):
            self.look_up()  # the server closed the idle connection meanwhile: make a new one
            return
        self._end(result)
