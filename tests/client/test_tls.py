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

    def web(self, name: str, trusts: Path | None) -> tuple[Web, str]:
        """A client, and the URL of a page on a server whose certificate has this name."""
        pages = Resource()
        pages.putChild(b"", Data(b"hello", "text/plain"))
        port = serve(self, pages, authority().server(name))
        agent = make_agent(running, None if trusts is None else str(trusts))
        return Web(AnyAddress(agent, SystemClock(running))), f"https://localhost:{port}/"

    async def test_who_is_trusted(self) -> None:
        web, url = self.web("localhost", self.file)
        self.assertEqual((await web.get(url)).body, b"hello")

    async def test_who_is_not(self) -> None:
        """The handshake fails before a body is sent."""
        untrusted = (
            "TLS failed: certificate verify failed (--cacert names a file with certificates to "
            "trust)"
        )
        other = "its certificate is for another name"
        for name, trusts, reason in (
            ("localhost", None, untrusted),
            ("other.example", self.file, other),
        ):
            web, url = self.web(name, trusts)
            for asking in (web.get(url), web.post(url, {}, b"body")):
                asked: Deferred[Any] = Deferred.fromCoroutine(asking)
                said = str(await self.assertFailure(asked, ClientError))
                self.assertEqual(said, f"{url}: {reason}")

    def test_files_without_certificates(self) -> None:
        for content in (b"", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"):
            self.file.write_bytes(content)
            error = self.assertRaises(ClientError, make_agent, running, str(self.file))
            self.assertIn("the file holds no certificate in PEM", str(error))
