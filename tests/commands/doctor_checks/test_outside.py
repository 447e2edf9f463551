"""Checks from outside in: proxies of every kind in between, and real certificates."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from rsscloud_broker.client.feed_requests import FeedAnswer
from rsscloud_broker.client.web import ClientError
from rsscloud_broker.commands.doctor_checks import outside
from rsscloud_broker.config import Http, Metrics
from rsscloud_broker.runtime.self_test import SelfTest
from rsscloud_broker.wire.self_test import PATH
from tests.commands.doctor_checks.cases import DoctorTestCase
from tests.e2e.installed import certified

#: What the broker learns of a request, if a client calls it directly.
DIRECT = {
    "version": "1",
    "scheme": "http",
    "path": PATH,
    "host": "broker.example",
    "peer": "127.0.0.1",
    "client": "127.0.0.1",
    "forwarded_for": "",
    "forwarded_proto": "",
    "forwarded_host": "",
}

#: A proxy: makes what the broker learns from the headers of the doctor's request.
Proxy = Callable[[Mapping[str, str]], Mapping[str, str]]


class OutsideTestCase(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.change(public_url="https://broker.example")
        self.run_broker()
        self.service = SelfTest(str(self.data), self.clock)
        self.service.startService()
        self.arrived: Proxy = lambda headers: {
            **DIRECT,
            "client": "198.51.100.7",
            "forwarded_for": ", ".join([*headers.values(), "198.51.100.7"]),
        }
        self.answer: FeedAnswer | Exception | None = None
        self.patch(outside, "_find_unreachable", lambda _: [])

    async def ask(self, url: str, headers: Mapping[str, str]) -> FeedAnswer:
        self.asked.append((url, headers))
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        parts = urlsplit(url)
        self.assertEqual(parts.path.removeprefix(urlsplit(self.config.address).path), PATH)
        body = self.service.answer(dict(parse_qsl(parts.query)), self.arrived(headers))
        return FeedAnswer(url, 200 if body else 404, {}, body or b"")

    async def through(self, **facts: str) -> list[tuple[str, str, str]]:
        """The results of both checks of a request that arrives in this way."""
        before = self.arrived
        self.arrived = lambda headers: {**before(headers), **facts}
        context = self.context()
        public = await self.results(outside.public_url, context)
        return [*public, *await self.results(outside.proxy, context)]

    async def assert_fine(self, **facts: str) -> None:
        """Assert that all is well with a request that arrives in this way."""
        results = await self.through(**facts)
        self.assertEqual({level for level, _, _ in results}, {"ok"}, results)

    async def assert_problem(self, level: str, *parts: str, **facts: str) -> None:
        """Assert that one result is not ok, with its level, and that it says some words."""
        (bad,) = [each for each in await self.through(**facts) if each[0] != "ok"]
        self.assertEqual(bad[0], level)
        for part in parts:
            self.assertIn(part, "; ".join(bad[1:]))


class ArrivalTests(OutsideTestCase):
    async def test_it_arrives(self) -> None:
        self.change(http=Http(trusted_proxies=("127.0.0.1",)))
        results = await self.through()
        self.assertEqual([level for level, _, _ in results], ["ok", "ok"], results)
        self.assertIn("arrives at this broker", results[0][1])
        self.assertIn("(this one: 198.51.100.7)", results[1][1])

    async def test_somebody_else_answers(self) -> None:
        nginx = {"server": "nginx"}
        url = f"https://broker.example{PATH}"
        moved = {"location": f"https://www.broker.example{PATH}?x=1"}
        redirected = "redirected to https://www.broker.example; if that is right, set public_url"
        for answer, reason in (
            (FeedAnswer(url, 404, nginx), "status 404, by nginx, so another program"),
            (FeedAnswer(url, 502, nginx), "the proxy cannot reach the broker"),
            (FeedAnswer(url, 301, moved), redirected),
            (FeedAnswer(url, 200, {}, b"<html>"), "not one of a broker's self-test"),
            (ClientError("certificate verify failed"), "certificate verify failed"),
        ):
            self.answer = answer
            await self.assert_problem("fail", reason)

    async def test_another_broker_answers(self) -> None:
        other = SelfTest(str(self.home), self.clock)
        other.startService()
        self.service = other
        await self.assert_problem("fail", "status 404")

    async def test_not_running(self) -> None:
        context = self.context()
        context.runs = False
        self.assertEqual(await self.results(outside.public_url, context), [])
        self.assertEqual(await self.results(outside.proxy, context), [])
        self.assertEqual(self.asked, [])

    async def test_turned_off(self) -> None:
        self.doors = frozenset()
        await self.assert_problem("warn", "[front_doors.doctor]")

    async def test_a_key_that_is_missing(self) -> None:
        (self.data / "self-test.key").unlink()
        await self.assert_problem("warn", "run the doctor as the broker's user")

    async def test_without_a_public_url(self) -> None:
        self.change(public_url=None)
        results = await self.results(outside.public_url)
        self.assertEqual(results[0][0], "warn")
        self.assertIn("public_url is not set", results[0][1])


class ChangesTests(OutsideTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.change(http=Http(trusted_proxies=("127.0.0.1",)))

    async def test_another_host(self) -> None:
        await self.assert_problem(
            "warn",
            "arrives for the host 127.0.0.1:5337",
            "proxy_set_header Host $host",
            host="127.0.0.1:5337",
        )

    async def test_the_host_without_its_port(self) -> None:
        """So nginx passes it on, with the manual's configuration."""
        self.change(public_url="https://broker.example:8443")
        await self.assert_fine()

    async def test_another_path(self) -> None:
        await self.assert_problem("warn", "arrives as /broker/x", path="/broker/x")
        self.change(public_url="https://broker.example/b")
        for path in (PATH, f"/b{PATH}"):
            await self.assert_fine(path=path)

    async def test_another_scheme(self) -> None:
        await self.assert_problem("warn", "set public_url to http://", forwarded_proto="http")
        await self.assert_fine(forwarded_proto="https")


class ProxyTests(OutsideTestCase):
    async def test_not_trusted(self) -> None:
        await self.assert_problem("fail", 'trusted_proxies = ["127.0.0.1"]', client="127.0.0.1")

    async def test_addresses_that_can_be_forged(self) -> None:
        self.change(http=Http(trusted_proxies=("127.0.0.1",)))

        def passing(headers: Mapping[str, str]) -> Mapping[str, str]:
            given = headers.get("X-Forwarded-For", "198.51.100.7")
            return {**DIRECT, "client": given, "forwarded_for": given}

        self.arrived = passing
        await self.assert_problem("fail", "can forge")

    async def test_a_proxy_that_replaces_the_header(self) -> None:
        self.change(http=Http(trusted_proxies=("127.0.0.1",)))
        await self.assert_fine(forwarded_for="198.51.100.7")

    async def test_the_doctor_on_the_machine_of_the_proxy(self) -> None:
        """Its own address is among the trusted ones, so the broker looks further."""
        self.change(http=Http(trusted_proxies=("127.0.0.1",)))

        def adding(headers: Mapping[str, str]) -> Mapping[str, str]:
            hops = [*headers.values(), "127.0.0.1"]
            return {**DIRECT, "client": hops[0], "forwarded_for": ", ".join(hops)}

        self.arrived = adding
        await self.assert_fine()

    async def test_a_unix_socket(self) -> None:
        await self.assert_fine(peer="")
        await self.assert_problem(
            "warn",
            "from a UNIX socket without X-Forwarded-For",
            peer="",
            client="127.0.0.1",
            forwarded_for="",
        )

    async def test_directly(self) -> None:
        port = self.config.listen[0].split(":")[1]
        self.change(public_url=f"http://broker.example:{port}")
        results = await self.through(forwarded_for="", client="127.0.0.1")
        self.assertIn("without a proxy", results[-1][1])
        # No forged header was sent: the broker would log a warning about it.
        self.assertEqual([headers for _, headers in self.asked], [{}])

    async def test_a_socket_of_systemd(self) -> None:
        """Its port is not known; a TLS proxy in front of it shows by the scheme."""
        self.change(listen=("systemd:domain=INET:index=0",), public_url="http://broker.example")
        results = await self.through(forwarded_for="", client="127.0.0.1")
        self.assertIn("without a proxy", results[-1][1])
        self.change(public_url="https://broker.example")
        await self.assert_problem(
            "warn", "without X-Forwarded-For", forwarded_for="", client="127.0.0.1"
        )

    async def test_not_directly(self) -> None:
        await self.assert_problem(
            "warn", "does not itself listen on port 443", forwarded_for="", client="127.0.0.1"
        )


class AddressesTests(DoctorTestCase):
    async def test_one_that_does_not_answer(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]

            real = socket.getaddrinfo

            def two(host: str, *args: Any, **more: Any) -> list[Any]:
                if host != "broker.example":
                    return real(host, *args, **more)
                kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
                return [(*kind, ("127.0.0.1", port)), (*kind, ("127.0.0.9", port))]

            self.patch(socket, "getaddrinfo", two)
            (result,) = outside._find_unreachable(f"http://broker.example:{port}")
            self.assertEqual(result.level, "warn")
            self.assertIn("broker.example has the address 127.0.0.9", result.found)


class CertificatesTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.certificate, self.key = certified(self.home, "localhost")

    def serve(self) -> int:
        """Serve one connection over TLS; the port."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)

        def accept() -> None:
            connection, _ = server.accept()
            with connection, context.wrap_socket(connection, server_side=True) as tls:
                tls.recv(1)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 10)
        return int(server.getsockname()[1])

    async def test_of_the_public_url(self) -> None:
        """The certificate of the tests is good for a day; nobody trusts who signed it."""
        port = self.serve()
        self.change(public_url=f"https://localhost:{port}")
        await self.assert_only(
            outside.certificates, "warn", f"the certificate of localhost:{port} is valid only until"
        )

    async def test_of_endpoints(self) -> None:
        endpoint = f"ssl:443:privateKey={self.key}:certKey={self.certificate}"
        self.change(metrics=Metrics(listen=(endpoint,)), public_url="http://broker.example")
        await self.assert_only(outside.certificates, "warn", endpoint)
        self.change(listen=(endpoint,), metrics=Metrics())
        now = datetime.now(UTC)
        for moment, level, part in (
            (now, "warn", "see whether it is renewed automatically"),
            (now + timedelta(days=2), "fail", "renew it"),
            (now - timedelta(days=3), "fail", "not valid before"),
        ):
            self.patch(self.clock, "wall_seconds", moment.timestamp)
            await self.assert_only(outside.certificates, level, part)

    async def test_no_certificate(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self.change(public_url=f"https://localhost:{port}")
        await self.assert_only(outside.certificates, "fail", "cannot be read")

    async def test_files_that_are_gone(self) -> None:
        self.change(listen=("ssl:443:privateKey=/no/such.pem",), public_url="http://b.example")
        await self.assert_only(outside.certificates, "fail", "/no/such.pem")
