"""Servers on loopback for tests of the outbound clients, and clients that may call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import ip_network
from socket import socket
from typing import Any, TypeAlias, cast

from attrs import define, field, frozen
from twisted.internet import reactor, tcp
from twisted.internet.defer import Deferred, execute, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorSSL, IReactorTCP
from twisted.internet.protocol import connectionDone
from twisted.internet.ssl import Certificate
from twisted.internet.task import deferLater
from twisted.internet.testing import StringTransport
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.http_headers import Headers
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from rsscloud_broker.outbound import AddressGuard, CallbackClient, TLSContext, TopicClient
from rsscloud_broker.outbound.bodies import TruncatingBody
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.http1 import Http1, HTTPAnswer, Message
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.util.twisted_overrides.uvloop_reactor import ConnectionAttempt, UvloopReactor

LOOPBACK = ("127.0.0.0/8", "::1/128")


# --- servers ------------------------------------------------------------------


@frozen
class Seen:
    """A request as the server received it."""

    method: str
    uri: str
    headers: Headers
    body: bytes


Answer: TypeAlias = Callable[[Request], bytes | int]


class Pages(Resource):
    """Answers requests by their path, and records them.

    :ivar other: answers at all other paths.
    :ivar asked: fires at the next request whose answer does not end.
    """

    isLeaf = True

    def __init__(self, answers: Mapping[str, Answer], other: Answer | None = None) -> None:
        super().__init__()
        self.answers = dict(answers)
        self.other = other or page(200, b"hello")
        self.seen: list[Seen] = []
        self.asked: Deferred[Request] = Deferred()

    def render(self, request: Request) -> bytes | int:
        body = request.content.read() if request.content else b""
        self.seen.append(
            Seen(request.method.decode(), request.uri.decode(), request.requestHeaders, body)
        )
        answer = self.answers.get(request.path.decode(), self.other)(request)
        if answer == NOT_DONE_YET and not self.asked.called:
            self.asked.callback(request)
        return answer


def page(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """A page with headers; underscores stand for hyphens."""

    def answer(request: Request) -> bytes:
        request.setResponseCode(status)
        for name, value in headers.items():
            request.setHeader(name.replace("_", "-"), value)
        return body

    return answer


def silence(request: Request) -> int:
    """Never answer."""
    return NOT_DONE_YET


def half(request: Request) -> int:
    """Send the beginning of a body, and nothing more."""
    request.setHeader("content-length", "1000")
    request.write(b"so far")
    return NOT_DONE_YET


class _Tracked(ProtocolWrapper):
    factory: _Tracking

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        super().connectionLost(reason)
        self.factory.look()


class _Tracking(WrappingFactory):
    """Knows when the last connection of a server is gone."""

    protocol = _Tracked
    noisy = False

    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)
        wrapped.noisy = False
        self._idle: Deferred[None] | None = None

    def look(self) -> None:
        if self._idle is not None and not self.protocols:
            idle, self._idle = self._idle, None
            idle.callback(None)

    def close(self) -> Deferred[None]:
        idle: Deferred[None] = Deferred()
        self._idle = idle
        for connection in list(self.protocols):
            connection.transport.abortConnection()
        self.look()
        return idle


def listen(case: TestCase, factory: Any, tls: Any = None, interface: str = "127.0.0.1") -> int:
    """Serve on loopback until the test ends; return the port."""
    tracking: Any = _Tracking(factory)
    if tls is None:
        port = IReactorTCP(reactor).listenTCP(0, tracking, interface=interface)
    else:
        port = IReactorSSL(reactor).listenSSL(0, tracking, tls, interface=interface)

    async def stop() -> None:
        await maybeDeferred(port.stopListening)
        await tracking.close()
        await deferLater(reactor, 0)  # the client's side sees it too

    case.addCleanup(lambda: Deferred.fromCoroutine(stop()))
    address: Any = port.getHost()
    return int(address.port)


def serve(case: TestCase, pages: Resource, tls: Any = None, interface: str = "127.0.0.1") -> int:
    """Serve pages on loopback until the test ends; return the port."""
    return listen(case, Site(pages, timeout=None), tls, interface)


def black_hole(case: TestCase, host: str, port: int) -> None:
    """Make the system drop the packets of connections to an address until the test ends."""
    listener = socket()
    case.addCleanup(listener.close)
    listener.bind((host, port))
    listener.listen(0)
    while True:  # when a connection hangs, the queue is full
        filling = socket()
        case.addCleanup(filling.close)
        filling.setblocking(False)
        filling.connect_ex((host, port))
        try:
            filling.getpeername()
        except OSError:
            return


# --- the client ---------------------------------------------------------------


@define
class Names:
    """A resolver that has a table of names; an address resolves to itself.

    :ivar asked: the names that were looked up, in order.
    """

    table: dict[str, list[str]] = field(factory=dict)
    asked: list[str] = field(factory=list)

    def __call__(self, host: str) -> Deferred[list[str]]:
        self.asked.append(host)
        if host in self.table:
            return succeed(self.table[host])
        if host.replace(".", "").isdigit() or ":" in host:
            return succeed([host])
        return fail(OSError("no such name"))


@define
class Client:
    """An outbound client, and the parts that tests look at.

    :ivar clock: the clock of deadlines and idle connections.
    """

    outbound: CallbackClient | TopicClient
    clock: Clock
    names: Names


@define
class Network:
    """A reactor for a client: it makes real connections, and its timers use the test's clock."""

    connections: Any
    clock: Clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connections, name)

    def seconds(self) -> float:
        return self.clock.seconds()

    def callLater(self, delay: float, *args: Any) -> Any:
        """Calls without delay go to the real reactor, all others to the test's clock."""
        return (self.clock if delay else self.connections).callLater(delay, *args)

    def connectTCP(self, host: str, port: int, factory: Any, timeout: Any) -> Any:
        """What the reactor does, but by the clock of the test."""
        if isinstance(self.connections, UvloopReactor):
            return ConnectionAttempt(self, host, port, factory, timeout)
        connector = tcp.Connector(host, port, factory, timeout, None, self)
        connector.connect()
        return connector


OPTIONS: dict[str, Any] = {"user_agent": "tests/1.0", "deadline": 15.0, "body_limit": 1000}


def make_client(
    names: Any = None,
    *,
    kind: type[CallbackClient] | type[TopicClient] = TopicClient,
    allowed: Sequence[str] = LOOPBACK,
    own: Sequence[tuple[str, int]] = (),
    network: Any = None,
    trusted: Sequence[Certificate] = (),
    **limits: Any,
) -> Client:
    """A client that may call loopback; by default the one for topics.

    :param network: makes the connections; None for the real reactor.
    """
    names = Names() if names is None else names
    clock = Clock()
    guard = AddressGuard(map(ip_network, allowed), own, limits.get("blocks"))
    both: Any = Network(network or reactor, clock)
    if kind is TopicClient:
        limits = {"in_thread": execute} | limits
    outbound = kind(both, names, guard, TLSContext(trusted), **(OPTIONS | limits))
    return Client(outbound, clock, names)


#: Like ``make_client``, for the client for callbacks.
make_callback_client = partial(make_client, kind=CallbackClient)


def answer_to(connection: Http1, message: Message) -> Deferred[HTTPAnswer]:
    """Send a request over a connection; a Deferred with the answer."""
    answered: Deferred[HTTPAnswer] = Deferred(lambda _: connection.cancel())

    def done(answer: HTTPAnswer | Exception) -> None:
        if isinstance(answer, Exception):
            answered.errback(answer)
        else:
            answered.callback(answer)

    connection.request(message, done)
    return answered


def connected(
    request: Message, budget: AnswerBudget, limit: int
) -> tuple[Http1, StringTransport, Deferred[HTTPAnswer]]:
    """A connection over which a request was sent, without a network; and its answer.

    :param limit: how many bytes are kept of the answer's body.
    """
    make_body = partial(TruncatingBody, limit=limit)
    connection = Http1((False, "127.0.0.1", 80), None, make_body, budget)
    connection.attempt = cast(Any, None)  # no longer needed
    answered = answer_to(connection, request)
    transport = StringTransport()
    connection.makeConnection(transport)
    return connection, transport, answered
