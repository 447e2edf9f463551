"""The site over TLS, as an ``ssl:`` endpoint serves it."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from rsscloud_broker.config import ConfigError
from rsscloud_broker.http.certificates import Certificate
from rsscloud_broker.http.listening import listener
from tests.front_doors.fixture import House
from tests.outbound.authority import authority
from tests.processes import free_port


def served_certificate(port: int) -> bytes:
    """The certificate that a new connection gets, in DER."""
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port), timeout=30))


def status_over_tls(port: int, protocols: Sequence[str]) -> int:
    """Send a request from a client that offers some protocols (ALPN); return the status."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


class CertificateTests(TestCase):
    """An ``ssl:`` endpoint whose certificate is renewed while it listens."""

    def setUp(self) -> None:
        self.house = House(self)
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.renew()
        port = free_port()
        self.description = (
            f"ssl:{port}:interface=127.0.0.1"
            f":privateKey={self.directory / 'key.pem'}:certKey={self.directory / 'cert.pem'}"
        )
        certificates: list[Certificate] = []
        service: Any = listener(self.description, self.house.factory, reactor, certificates)
        self.assertEqual(certificates, [])  # nobody listens yet
        service.privilegedStartService()
        service.startService()
        self.addCleanup(service.stopService)
        (self.certificate,) = certificates
        self.port = port

    def renew(self, days: int = 1) -> bytes:
        """Write a new certificate, as certbot would; return it in DER."""
        certificate, key = authority().pem("localhost", days=days)
        (self.directory / "cert.pem").write_bytes(certificate)
        (self.directory / "key.pem").write_bytes(key)
        return ssl.PEM_cert_to_DER_cert(certificate.decode())

    def served(self) -> Deferred[bytes]:
        return deferToThread(served_certificate, self.port)

    async def test_new_connections_get_the_new_certificate(self) -> None:
        before = await self.served()
        renewed = self.renew(days=2)
        read = self.certificate.read_again(reactor)
        self.assertEqual(await self.served(), before)  # the new one is not used yet
        until = self.certificate.use(read)
        self.assertRegex(until, r"^\d{4}-\d\d-\d\d \d\d:\d\d UTC$")
        self.assertEqual(await self.served(), renewed)
        # Browsers and curl offer several protocols (ALPN); other clients offer none.
        for protocols in (["h2", "http/1.1"], ["http/1.1"], []):
            status = await deferToThread(status_over_tls, self.port, protocols)
            self.assertEqual(status, 200)

    def test_the_same_certificate(self) -> None:
        self.assertEqual(self.certificate.use(self.certificate.read_again(reactor)), "")

    async def test_files_that_cannot_be_used(self) -> None:
        before = await self.served()
        for name, content in (
            ("key.pem", authority().pem("localhost")[1]),  # the key of another certificate
            ("cert.pem", b"no certificate"),
            ("cert.pem", None),
        ):
            self.renew()
            path = self.directory / name
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            error = self.assertRaises(ConfigError, self.certificate.read_again, reactor)
            self.assertIn(f"listen: the certificate of '{self.description}' cannot", str(error))
            self.assertNotIn("\n", str(error))
            self.assertNotIn("[(", str(error))  # OpenSSL's codes
        self.assertEqual(await self.served(), before)
