"""The certificates that the client trusts, and its error messages about others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.static import Data

from rsscloud_broker.client.any_address import AnyAddress, make_agent
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.util.clock import SystemClock
from tests.outbound.authority import authority
from tests.outbound.servers import serve

# A reactor is a module; its interfaces are known only at run time.
running: Any = reactor


class CertificateTests(TestCase):
    def setUp(self) -> None:
        self.file = Path(self.mktemp())
        whole = authority().certificate.public_bytes(Encoding.PEM)
        self.file.write_bytes(b"Of our own:\n" + whole + b"\n" + whole)

    async def get(self, name: str, *, trusts: Path | None) -> bytes:
        """Fetch a page from a server whose certificate has this name."""
        web, url = self.web(name, trusts)
        return (await web.get(url)).body

    def web(self, name: str, trusts: Path | None) -> tuple[Web, str]:
        """A client, and the URL of a page on a server whose certificate has this name."""
        tls = authority().server(name)
        pages = Resource()
        pages.putChild(b"", Data(b"hello", "text/plain"))
        port = serve(self, pages, tls)
        agent = make_agent(running, None if trusts is None else str(trusts))
        return Web(AnyAddress(agent, SystemClock(running))), f"https://localhost:{port}/"

    async def complaint(self, name: str, *, trusts: Path | None) -> str:
        getting: Deferred[Any] = Deferred.fromCoroutine(self.get(name, trusts=trusts))
        return str(await self.assertFailure(getting, ClientError)).partition("/: ")[2]

    async def test_who_is_trusted(self) -> None:
        self.assertEqual(await self.get("localhost", trusts=self.file), b"hello")

    async def test_who_is_not(self) -> None:
        self.assertEqual(
            await self.complaint("localhost", trusts=None),
            "TLS failed: certificate verify failed (--cacert names a file with certificates to "
            "trust)",
        )

    async def test_who_is_not_is_sent_nothing(self) -> None:
        """The handshake fails before a body is sent."""
        web, url = self.web("localhost", None)
        posting: Deferred[Any] = Deferred.fromCoroutine(web.post(url, {}, b"body"))
        said = str(await self.assertFailure(posting, ClientError))
        self.assertTrue(said.startswith(f"{url}: TLS failed: certificate verify failed"), said)

    async def test_another_name(self) -> None:
        said = await self.complaint("other.example", trusts=self.file)
        self.assertEqual(said, "its certificate is for another name")

    def test_files_without_certificates(self) -> None:
        for content in (b"", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"):
            self.file.write_bytes(content)
            error = self.assertRaises(ClientError, make_agent, running, str(self.file))
            self.assertIn("the file holds no certificate in PEM", str(error))
