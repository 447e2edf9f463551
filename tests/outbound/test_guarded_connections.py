"""Tests that connections go only to checked addresses, and over TLS to the host that the
certificate names.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.ssl import TLSVersion

from rsscloud_broker.outbound import Resolver
from rsscloud_broker.util.twisted_overrides.uvloop_reactor import ConnectionAttempt
from tests.name_server import NameServer
from tests.outbound.authority import authority
from tests.outbound.scripted import ClientTestCase, RawFactory
from tests.outbound.servers import Client, Names, listen, make_callback_client, serve


class GuardTests(ClientTestCase):
    async def test_refused_address_is_not_connected_to(self) -> None:
        """Nor the broker itself; and one bad address of a name is enough."""
        raw = RawFactory(b"hello")
        port = listen(self, raw)
        loopback, private = "127.0.0.1 is not public (loopback)", "10.0.0.1 is not public (private)"
        itself = f"127.0.0.1 with port {port} is this broker itself"
        refused: list[tuple[list[str], dict[str, Any], str]] = [
            (["127.0.0.1"], {"allowed": ()}, loopback),
            *(
                (["127.0.0.1"], {"own": [(own, port)]}, itself)
                for own in ("127.0.0.1", "", "0.0.0.0")
            ),
            (["127.0.0.1", "10.0.0.1"], {}, private),
            (["10.0.0.1", "127.0.0.1"], {}, private),
        ]
        for addresses, options, why in refused:
            for host in ("a.example", *(addresses if len(addresses) == 1 else ())):
                client = self.make_client(Names({"a.example": addresses}), **options)
                reason = await self.refusal(self.begin(client, f"http://{host}:{port}/"))
                self.assertIn(why, reason)
        self.assertEqual(raw.connections, [])

    async def test_peer_that_is_not_the_one_connected_to(self) -> None:
        """A connection that reached another address than the checked one is not used."""

        class Astray(socket.socket):
            def connect_ex(self, address: Any) -> int:
                return super().connect_ex(("127.0.0.1", port))

        def astray(attempt: Any, host: str, port: int) -> Any:
            return connect(attempt, "127.0.0.1", port)

        raw = RawFactory(b"hello")
        port = listen(self, raw)
        connect = ConnectionAttempt._connect
        self.patch(ConnectionAttempt, "_connect", astray)  # on the reactor of couriers
        self.patch(socket, "socket", Astray)
        for scheme in ("http", "https"):
            client = self.make_client(allowed=["127.0.0.2/32"])
            reason = await self.refusal(self.begin(client, f"{scheme}://127.0.0.2:{port}/"))
            self.assertIn("127.0.0.1 is not public (loopback)", reason)
        self.assertEqual(raw.requests, [])

    async def test_name_is_looked_up_once(self) -> None:
        """A name server that would answer differently the next time is not asked again."""

        class Rebinding(Names):
            def __call__(self, host: str) -> Deferred[list[str]]:
                self.asked.append(host)
                return succeed(["127.0.0.1"] if len(self.asked) == 1 else ["10.0.0.1"])

        names = Rebinding()
        port = serve(self, self.pages)
        answer = await self.begin(self.make_client(names), f"http://evil.example:{port}/")
        self.assertEqual(answer.body, b"hello")
        self.assertEqual(names.asked, ["evil.example"])
        host = self.pages.seen[0].headers.getRawHeaders("host")
        self.assertEqual(host, [f"evil.example:{port}"])

    async def test_kept_address_is_judged_anew(self) -> None:
        """A name that was called before is not called at an address that is forbidden since."""
        server = NameServer({"inner.example": ["127.0.0.1"]})
        server.start()
        self.addCleanup(server.stop)
        resolver = Resolver(reactor, [server.place])
        resolver.startService()
        self.addCleanup(resolver.stopService)
        client: Any = self.make_client(resolver)
        url = f"http://inner.example:{serve(self, self.pages)}/"
        self.assertEqual((await self.begin(client, url)).body, b"hello")
        asked = list(server.asked)
        client.outbound.allow([])
        self.assertIn("is not public (loopback)", await self.refusal(self.begin(client, url)))
        self.assertEqual(server.asked, asked)

    async def test_next_address_if_one_does_not_answer(self) -> None:
        port = serve(self, self.pages)  # on 127.0.0.1 only
        client = self.make_client(Names({"two.example": ["127.0.0.2", "127.0.0.1"]}))
        answer = await self.begin(client, f"http://two.example:{port}/")
        self.assertEqual(answer.body, b"hello")

    async def test_no_address(self) -> None:
        def fail(host: str) -> Deferred[list[str]]:
            raise UnicodeError("label empty or too long")

        for names, host, why in (
            (Names({"none.example": []}), "none.example", "has no address"),
            (Names(), "unknown.example", "does not resolve: no such name"),
            (fail, "a..b", ""),
        ):
            asking = self.begin(self.make_client(names), f"http://{host}/")
            self.assertIn(f"the name {host} {why}", await self.refusal(asking))


class TLSTests(ClientTestCase):
    def client(self, **table: list[str]) -> Client:
        names = {name.replace("_", "."): found for name, found in table.items()}
        return self.make_client(Names(names), trusted=[authority().trusted])

    def serve_as(self, *names: str, days: int = 1) -> int:
        return serve(self, self.pages, authority().server(*names, days=days))

    async def test_accepted(self) -> None:
        """By name, by wildcard, with a dot at the end, in capitals, and by address."""
        named = ("one.good.example", "one.good.example.", "ONE.Good.Example")
        for certified, hosts in (
            ("one.good.example", named),
            ("*.good.example", named),
            ("127.0.0.1", ("127.0.0.1",)),
        ):
            port = self.serve_as(certified)
            client = self.client(one_good_example=["127.0.0.1"])
            client.names.table["one.good.example."] = ["127.0.0.1"]
            for host in hosts:
                answer = await self.begin(client, f"https://{host}:{port}/")
                self.assertEqual(answer.body, b"hello")

    async def test_refused(self) -> None:
        ours, strangers, good = authority(), authority("Strangers"), "good.example"
        for options, why in (
            (ours.server("other.example"), "is for another name"),
            (ours.server(good, days=-1), "has expired"),
            (ours.server(good, days=9), "is not valid yet"),
            (ours.server(good, lowerMaximumSecurityTo=TLSVersion.TLSv1_1), "TLS failed: "),
            (strangers.server(good), "is of an authority that is not trusted"),
            (None, "TLS failed: "),  # the server speaks no TLS
        ):
            if options is None:
                port = listen(self, RawFactory(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
            else:
                port = serve(self, self.pages, options)
            client = self.client(good_example=["127.0.0.1"])
            self.assertIn(why, await self.refusal(self.begin(client, f"https://{good}:{port}/")))
        client = self.make_client(Names({good: ["127.0.0.1"]}))  # it trusts what the system does
        url = f"https://{good}:{self.serve_as(good)}/"
        self.assertIn("authority that is not trusted", await self.refusal(self.begin(client, url)))
        self.assertEqual(self.pages.seen, [])

    async def test_wrong_address(self) -> None:
        """No certificate is valid for an unusual spelling, even if the resolver accepts it."""
        client = self.client()
        client.names.table["127.1"] = ["127.0.0.1"]
        for host, names in (("127.0.0.1", ("127.0.0.2", "localhost")), ("127.1", ("127.0.0.1",))):
            asking = self.begin(client, f"https://{host}:{self.serve_as(*names)}/")
            reason = await self.refusal(asking)
            self.assertIn(f"the certificate of {host} is for another name", reason)

    async def test_peer_that_does_not_take_part_in_closing(self) -> None:
        """The server reads and writes on, and never closes its side."""
        raw = RawFactory(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", closes=False)
        port = listen(self, raw, authority().server("good.example"))
        client = self.client(good_example=["127.0.0.1"])
        answer = await self.begin(client, f"https://good.example:{port}/")
        self.assertEqual(answer.body, b"hello")
        client.clock.advance(2)  # the client waits a moment before it closes
        connection: Any = raw.connections[0]
        await connection.lost


class LeanGuardTests(GuardTests):
    make_client = staticmethod(make_callback_client)


class LeanTLSTests(TLSTests):
    make_client = staticmethod(make_callback_client)
