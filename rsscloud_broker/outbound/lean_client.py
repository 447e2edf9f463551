"""The HTTP client for notifications: guarded, and as light as it can be.

A broker makes one small request to each of very many hosts.  So a request here
is: look the name up (or not at all, for an address), judge every address, connect
to a judged one, write, read status and a capped body, all under one deadline.  A
connection is kept for a moment in case there is more for the same host.

What is unusual here is so for speed.  ``request`` waits for a single Deferred, in
which connecting and being answered are one, and needs no timer of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from zope.interface import implementer

from rsscloud_broker.interfaces import IOutbound, OutboundReply
from rsscloud_broker.model import OutboundError
from rsscloud_broker.outbound.connections import Dialling, IdleConnections
from rsscloud_broker.outbound.expiry import Expiry
from rsscloud_broker.outbound.guard import AddressGuard
from rsscloud_broker.outbound.http1 import Answer, Http1, NotConnected
from rsscloud_broker.outbound.tls import TLSContext
from rsscloud_broker.outbound.urls import Target, is_address, redirected, target_of

#: Gives every address of a host name; raises OSError where there is none.
Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]

REDIRECTS = frozenset({301, 302, 307, 308})

#: Methods whose requests say nothing about a body if they have none.
BODILESS = frozenset({"GET", "HEAD"})


class _Exchange:
    """A request under way, redirects included.

    :ivar waits_for: what it waits for now.
    :ivar late: whether its deadline has passed.
    """

    __slots__ = ("late", "waits_for")

    waits_for: Deferred[Any]

    def __init__(self) -> None:
        self.late = False

    def too_late(self) -> None:
        """The deadline has passed."""
        self.late = True
        self.waits_for.cancel()


@implementer(IOutbound)
class LeanClient(Service):
    """Makes guarded requests.

    Stopping this service cancels what is under way, and closes what waits for more.

    :param resolve: looks names up.
    :param deadline: seconds for a whole request: name, connection, TLS, headers,
        body and every redirect.
    :param body_limit: bytes of an answer that are read; what is longer is cut off.
    :param idle_limit: connections that are kept in all, in case there is more.
    :param idle_seconds: for how long one is kept.
    """

    def __init__(
        self,
        reactor: Any,
        resolve: Resolve,
        guard: AddressGuard,
        tls: TLSContext,
        *,
        user_agent: str,
        deadline: float,
        body_limit: int,
        idle_limit: int = 100,
        idle_seconds: float = 2.0,
    ) -> None:
        self._reactor = reactor
        self._resolve = resolve
        self._guard = guard
        self._tls = tls
        self._user_agent = f"user-agent: {user_agent}\r\n"
        self._deadline = deadline
        self._body_limit = body_limit
        self._exchanges: Expiry[_Exchange] = Expiry(reactor, deadline, _Exchange.too_late)
        self._idle = IdleConnections(reactor, idle_limit, idle_seconds)

    def stopService(self) -> None:
        super().stopService()
        for exchange in self._exchanges.clear():
            exchange.waits_for.cancel()
        self._idle.close()

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        redirects: int = 0,
    ) -> OutboundReply:
        exchange = _Exchange()
        self._exchanges.add(exchange)
        try:
            while True:
                target = target_of(url)
                message = self._message(method, target, headers or {}, body)
                answer = await self._answer(exchange, target, message, method != "HEAD")
                location = answer.headers.get("location")
                follows = answer.status in REDIRECTS or (answer.status == 303 and method == "GET")
                if not (follows and location and redirects):
                    return OutboundReply(answer.status, answer.headers, answer.body, url)
                redirects -= 1
                url = redirected(url, location)
        except CancelledError:
            if exchange.late:
                raise OutboundError(f"no whole answer within {self._deadline:g} seconds") from None
            raise
        finally:
            self._exchanges.discard(exchange)

    def _message(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes
    ) -> bytes:
        """A request as it goes over the wire.

        :raises OutboundError: a header is more than a line of text.
        """
        head = f"{method} {target.path} HTTP/1.1\r\nhost: {target.authority}\r\n"
        if "user-agent" not in headers:
            head += self._user_agent
        for name, value in headers.items():
            line = f"{name}: {value}"
            if not line.isprintable():  # a line end would begin another header, or the body
                raise OutboundError(f"the header {name} must be one line of text")
            head += line + "\r\n"
        if body or method not in BODILESS:
            head += f"content-length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body

    async def _answer(
        self, exchange: _Exchange, target: Target, message: bytes, has_body: bool
    ) -> Answer:
        origin = target.origin
        idle = self._idle.take(origin)
        if idle is not None:
            exchange.waits_for = asking = idle.ask(message, answer_has_body=has_body)
            try:
                return self._keep(idle, await asking)
            except OutboundError:
                if idle.heard:
                    raise
                # The other side closed it just when we wrote: a new one, then.
        addresses: Sequence[str] = (target.host,)
        if not is_address(target.host):
            exchange.waits_for = looking = Deferred.fromCoroutine(self._look_up(target.host))
            addresses = await looking
        for address in addresses:  # before any is dialled: one that is bad spoils them all
            self._guard.judge(address, target.port)
        problem = f"the name {target.host} has no address"
        for number, address in enumerate(addresses, 1):
            # A timer for each attempt but the last, which has all the time that is left.
            timeout = self._deadline / len(addresses) if number < len(addresses) else None
            tls = self._tls.to(target.host, target.port) if target.secure else None
            connection = Http1(origin, tls, self._body_limit)
            exchange.waits_for = asking = connection.ask(message, answer_has_body=has_body)
            try:
                self._dial(connection, address, timeout)
                return self._keep(connection, await asking)
            except (NotConnected, OSError) as error:  # the next address may do
                problem = f"no connection to {address} port {target.port}: {error}"
        raise OutboundError(problem)

    def _dial(self, connection: Http1, address: str, timeout: float | None) -> None:
        dialling = Dialling(connection, self._guard, address)
        port = connection.origin[2]
        if connection.tls is None:
            connection.connector = self._reactor.connectTCP(address, port, dialling, timeout)
        else:
            connection.connector = self._reactor.connectSSL(
                address, port, dialling, connection.tls, timeout
            )

    def _keep(self, connection: Http1, answer: Answer) -> Answer:
        """Pass an answer on; see what becomes of the connection."""
        if connection.tls is not None:
            connection.tls.keep_session(connection.transport.getHandle())
        if connection.reusable:
            self._idle.give(connection)
        elif not connection.gone:
            connection.close()
        return answer

    async def _look_up(self, host: str) -> Sequence[str]:
        try:
            return await self._resolve(host)
        except (OSError, UnicodeError) as error:
            raise OutboundError(f"the name {host} does not resolve: {error}") from error
