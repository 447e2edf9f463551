"""What only the lean client does: keeping connections, resuming TLS sessions."""

from __future__ import annotations

import gc
from ipaddress import ip_network
from typing import Any

from OpenSSL._util import lib as openssl  # for what a server knows and pyOpenSSL does not tell
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.ssl import TLSVersion

from rsscloud_broker.errors import AddressRefused, OutboundError
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.outbound import tls
from tests.outbound.authority import authority
from tests.outbound.scripted import OK, CallbackClientTestCase, RawFactory, Scripted
from tests.outbound.servers import Names, black_hole, listen, make_callback_client

NETWORKS = (ip_network("127.0.0.0/8"),)


class KeptConnectionTests(CallbackClientTestCase):
    def setUp(self) -> None:
        self.client = make_callback_client(idle_limit=2, idle_seconds=2.0)

    async def ask(self, **request: Any) -> OutboundReply:
        return await self.begin(self.client, **request)

    async def test_used_again(self) -> None:
        self.serve()
        for _ in range(3):
            self.assertEqual((await self.ask()).body, b"hello")
        self.assertEqual([one.requests for one in self.server.connections], [3])

    async def test_not_used_again(self) -> None:
        for answer, method in (
            (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "GET"),
            (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "GET"),
            (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "GET"),
            (OK + b"more", "GET"),
            (OK + OK, "GET"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000, "GET"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD"),
        ):
            self.serve(answer, OK)
            await self.ask(method=method)
            await self.ask()
            self.assertEqual([one.requests for one in self.server.connections], [1, 1], answer[:60])
            await self.server.connections[0].lost

    async def test_not_used_again_when_the_guard_has_changed(self) -> None:
        """Neither one that waited, nor one that was in use."""
        self.serve()
        outbound = self.client.outbound
        await self.ask()
        outbound.allow(NETWORKS)
        await self.server.connections[0].lost
        asking = self.begin(self.client)
        outbound.allow(NETWORKS)
        await asking
        await self.ask()
        self.assertEqual([one.requests for one in self.server.connections], [1, 1, 1])
        outbound.allow([])
        await self.assertFailure(self.begin(self.client), AddressRefused)

    async def test_closed_after_a_while(self) -> None:
        self.serve()
        await self.ask()
        self.client.clock.advance(2)
        await self.server.connections[0].lost
        await self.ask()
        self.assertEqual(len(self.server.connections), 2)

    async def test_limit_of_them(self) -> None:
        self.serve()
        hosts = [f"http://127.0.0.{last}:{listen(self, self.server, interface=f'127.0.0.{last}')}/"
                 for last in (2, 3, 4)]  # fmt: skip
        for url in hosts:
            await self.ask(url=url)
        await self.server.connections[0].lost
        for url in reversed(hosts):
            await self.ask(url=url)
        self.assertEqual([one.requests for one in self.server.connections], [1, 2, 2, 1])

    async def test_service_that_stops_closes_them(self) -> None:
        self.serve()
        await self.ask()
        self.client.outbound.stopService()
        await self.server.connections[0].lost
        self.assertEqual(self.client.clock.getDelayedCalls(), [])

    async def test_service_that_stops_cancels_requests(self) -> None:
        spoken_to: Deferred[Scripted] = Deferred()
        self.serve(spoken_to.callback)
        asking = self.begin(self.client)
        await spoken_to
        self.client.outbound.stopService()
        self.failureResultOf(asking, CancelledError)

    async def test_other_side_closes_it_or_says_something_while_it_waits(self) -> None:
        for act in (lambda it: it.loseConnection(), lambda it: it.write(OK)):
            self.serve()
            await self.ask()
            act(self.server.connections[0].transport)
            await self.server.connections[0].lost
            self.assertEqual((await self.ask()).body, b"hello")

    async def test_closed_just_when_we_ask(self) -> None:
        """Nothing was heard, so it is asked again: once."""
        self.serve(OK, lambda connection: connection.transport.loseConnection(), OK)
        await self.ask()
        self.assertEqual((await self.ask()).body, b"hello")
        self.assertEqual([one.requests for one in self.server.connections], [2, 1])

    async def test_closed_again_or_after_something_was_heard(self) -> None:
        for heard, requests in ((b"", 3), (OK[:20], 2)):

            def close(connection: Scripted, heard: bytes = heard) -> None:
                connection.transport.write(heard)
                connection.transport.loseConnection()

            self.serve(OK, close, close, OK)
            await self.ask()
            self.assertIn("it was closed", await self.refusal(self.begin(self.client)))
            self.assertEqual(len(self.server.requests), requests)

    async def test_deadline_of_a_second_request(self) -> None:
        spoken_to: Deferred[Scripted] = Deferred()
        self.serve(OK, spoken_to.callback)
        await self.ask()
        asking = self.begin(self.client)
        connection = await spoken_to
        self.client.clock.advance(15)
        reason = str(self.failureResultOf(asking, OutboundError).value)
        self.assertEqual(reason, "no whole answer within 15 seconds")
        await connection.lost

    async def test_not_for_another_host_at_the_same_address(self) -> None:
        self.client.names.table |= {"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]}
        self.serve()
        for host in ("a.example", "b.example", "A.Example"):
            await self.ask(url=f"http://{host}:{self.port}/")
        self.assertEqual([one.requests for one in self.server.connections], [2, 1])


class SeveralAddressesTests(CallbackClientTestCase):
    def setUp(self) -> None:
        """A host of three addresses, of which two swallow what is sent to them."""
        self.serve()
        for hole in ("127.0.0.2", "127.0.0.3"):
            black_hole(self, hole, self.port)
        self.client = make_callback_client(
            Names({"h.example": ["127.0.0.2", "127.0.0.3", "127.0.0.1"]})
        )
        self.asking = self.begin(self.client, f"http://h.example:{self.port}/")

    async def test_time_is_shared_among_addresses(self) -> None:
        for _ in range(2):
            self.client.clock.advance(4.9)
            self.assertEqual(self.server.connections, [])
            self.client.clock.advance(0.1)
        self.assertEqual((await self.asking).body, b"hello")

    async def test_cancelled_while_it_connects(self) -> None:
        self.asking.cancel()
        self.failureResultOf(self.asking, CancelledError)
        self.client.clock.advance(15)  # no other address is tried
        self.assertEqual(self.client.clock.getDelayedCalls(), [])
        await self.begin(make_callback_client())
        self.assertEqual(len(self.server.connections), 1)

    async def test_abandoned_connections_end(self) -> None:
        self.asking.cancel()
        self.failureResultOf(self.asking, CancelledError)
        raw = RawFactory()
        asking = self.begin(self.client, f"http://127.0.0.1:{listen(self, raw)}/")
        await raw.spoken_to
        asking.cancel()
        self.failureResultOf(asking, CancelledError)
        await raw.connections[0].lost


class Resumable(Scripted):
    """Says whether its TLS session was resumed."""

    def dataReceived(self, data: bytes) -> None:
        connection = self.transport.getHandle()
        self.resumed = bool(openssl.SSL_session_reused(connection._ssl))
        super().dataReceived(data)


def tls_connections() -> list[object]:
    """Every outgoing connection over TLS that takes memory, whether it is of use or not."""
    return [one for one in gc.get_objects() if isinstance(one, tls._Connection)]


class SessionTests(CallbackClientTestCase):
    CLOSE = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

    def setUp(self) -> None:
        hosts = {"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]}
        self.client = make_callback_client(Names(hosts), trusted=[authority().trusted])

    def serve_resumable(self, **options: Any) -> None:
        server = authority().server("a.example", "b.example", enableSessionTickets=True, **options)
        self.serve(*[self.CLOSE] * 9, tls=server)
        self.server.protocol = Resumable

    async def resumed(self, *hosts: str) -> list[bool]:
        """Whether the connection to each of these hosts resumes a session."""
        for host in hosts:
            await self.begin(self.client, f"https://{host}:{self.port}/")
        connections: Any = self.server.connections
        return [connection.resumed for connection in connections]

    async def test_which_are_resumed(self) -> None:
        """Those of the same host, as far as they are kept."""
        many = tls.SESSIONS
        for options in ({}, {"lowerMaximumSecurityTo": TLSVersion.TLSv1_2}):
            for kept, hosts, resumed in (
                (many, "aaaa", [False, False, True, True]),
                (many, "ababab", [False] * 4 + [True] * 2),
                (1, "ababab", [False] * 6),
                (1, "aaabbba", [False, False, True] * 2 + [False]),
            ):
                self.patch(tls, "SESSIONS", kept)
                self.setUp()
                self.serve_resumable(**options)
                found = await self.resumed(*(f"{host}.example" for host in hosts))
                self.assertEqual(found, resumed, (options, kept, hosts))

    async def test_nothing_is_left_of_a_connection(self) -> None:
        """Not even for the collector of garbage, for which it would be much to do."""
        gc.collect()
        before = tls_connections()  # of the tests before this one
        gc.disable()
        self.addCleanup(gc.enable)
        for close in (self.CLOSE, OK):
            self.serve(close, tls=authority().server("a.example"))
            self.client = make_callback_client(
                Names({"a.example": ["127.0.0.1"]}), trusted=[authority().trusted], idle_limit=0
            )
            await self.begin(self.client, f"https://a.example:{self.port}/")
            await self.server.connections[0].lost
            self.assertEqual([one for one in tls_connections() if one not in before], [])

    async def test_session_that_the_server_has_forgotten(self) -> None:
        self.serve_resumable()
        await self.resumed("a.example", "a.example")
        before, forgetful = self.port, authority().server("a.example", enableSessionTickets=True)
        self.serve(self.CLOSE, tls=forgetful)
        self.server.protocol = Resumable
        context: Any = self.client.outbound._exchanger.tls
        session = context._sessions.pop(("a.example", before), None)
        self.assertIsNotNone(session)
        context._sessions["a.example", self.port] = session
        self.assertNotEqual(before, self.port)
        self.assertEqual(await self.resumed("a.example"), [False])
