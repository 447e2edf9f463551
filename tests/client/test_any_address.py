"""The outbound client of commands: it follows redirects, and says what failed as others do."""

from __future__ import annotations

from collections.abc import Coroutine
from gzip import compress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import ResponseFailed
from twisted.web.iweb import IAgent
from twisted.web.resource import Resource
from twisted.web.static import Data
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rsscloud_broker.client.any_address import SECONDS, AnyAddress, make_agent
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply, OutboundRequest, Signing
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.util.clock import SystemClock
from tests.client.recording import Answer, Server, SilentServer, client_to
from tests.outbound.authority import authority
from tests.outbound.servers import serve

HERE = "http://a.example/here"
MOVED = Answer(b"", 302, {"Location": "/there"})
GZIP = {"Content-Encoding": "gzip"}


@implementer(IAgent)
class BrokenAgent:
    """An agent that connects to nothing."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def request(self, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return fail(self.error)


class AnyAddressTests(SynchronousTestCase):
    def request(self, resource: Resource, redirects: int) -> Coroutine[Any, Any, OutboundReply]:
        client = client_to(resource)
        verifyObject(IOutbound, client)
        return client.request(OutboundRequest("GET", HERE, redirects=redirects))

    def asked(self, resource: Resource, redirects: int = 5) -> OutboundReply:
        return self.successResultOf(Deferred.fromCoroutine(self.request(resource, redirects)))

    def complaint(self, answer: Answer) -> str:
        return str(self.failureResultOf(self.request(Server(answer), 5), OutboundError).value)

    def test_answer(self) -> None:
        server = Server(Answer(b"<feed/>", 203, {"ETag": '"1"', "Link": "<a>; rel=hub"}))
        reply = self.asked(server)
        self.assertEqual((reply.status, reply.body, reply.url), (203, b"<feed/>", HERE))
        self.assertEqual((reply.headers["etag"], reply.headers["link"]), ('"1"', "<a>; rel=hub"))

    def test_redirects(self) -> None:
        reply = self.asked(Server(MOVED, MOVED, Answer(b"x")))
        self.assertEqual((reply.status, reply.url), (200, "http://a.example/there"))
        self.assertEqual(len(reply.hops), 2)

    def test_redirect_in_utf_8(self) -> None:
        server = Server(Answer(b"", 301, {"Location": "/caf\xe9"}), Answer(b"x"))
        self.assertEqual(self.asked(server).url, "http://a.example/caf%C3%A9")
        self.assertEqual(server.asked[-1].uri, "/caf%C3%A9")

    def test_too_many_redirects(self) -> None:
        server = Server(MOVED)
        self.assertEqual((self.asked(server, 3).status, len(server.asked)), (302, 4))

    def test_compressed_answers(self) -> None:
        for body, found in (
            (compress(b"<feed/>"), b"<feed/>"),
            (compress(b"<feed>") + compress(b"</feed>"), b"<feed></feed>"),
            (b"", b""),
        ):
            reply = self.asked(Server(Answer(body, 200, GZIP)))
            self.assertEqual((reply.body, reply.compressed), (found, True))

    def test_answers_that_are_not_read(self) -> None:
        twice = Answer(compress(compress(b"x")), 200, {"Content-Encoding": "gzip, gzip"})
        for answer, reason in (
            (Answer(b"x" * 10_001), "larger than 10000 bytes"),
            (Answer(compress(bytes(1_000_000)), 200, GZIP), "larger than 10000 bytes"),
            (Answer(compress(b"<feed/>")[:-1], 200, GZIP), "the answer breaks off"),
            (twice, "compressed more than once"),
        ):
            self.assertIn(reason, self.complaint(answer))

    def test_no_answer_in_time(self) -> None:
        clock = Clock()
        client = client_to(SilentServer(), clock)
        asked = Deferred.fromCoroutine(client.request(OutboundRequest("GET", HERE)))
        clock.advance(SECONDS - 1)
        self.assertNoResult(asked)
        clock.advance(1)
        error = self.failureResultOf(asked, OutboundError)
        self.assertIn("no answer within 30 seconds", str(error.value))

    def test_international_url(self) -> None:
        asked = OutboundRequest("GET", "http://bücher.example/ä")
        reply = self.successResultOf(client_to(Server(Answer(b"x"))).request(asked))
        self.assertEqual(reply.body, b"x")

    def test_a_body(self) -> None:
        server = Server(Answer(b"x"))
        posted = OutboundRequest("POST", HERE, {"Content-Type": "text/plain"}, b"hello")
        reply = self.successResultOf(client_to(server).request(posted))
        self.assertEqual(reply.body, b"x")
        self.assertEqual((server.asked[0].method, server.asked[0].body), ("POST", b"hello"))

    def test_signs_nothing(self) -> None:
        signed = OutboundRequest("GET", HERE, signing=Signing("s", "sha256"))
        self.failureResultOf(client_to(Server(Answer())).request(signed), ValueError)

    def test_not_a_url(self) -> None:
        for url in ("nonsense", "http://[::1", "ftp://a.example/"):
            asked = client_to(Server(Answer())).request(OutboundRequest("GET", url))
            self.failureResultOf(asked, OutboundError)

    def test_no_connection(self) -> None:
        refused = ConnectError(string="it is closed")
        for cause, reason in (
            (refused, "it is closed"),
            (DNSLookupError("no such name"), "no such name"),
            (ResponseFailed([Failure(refused)]), "it is closed"),
        ):
            client = AnyAddress(BrokenAgent(cause), Clock())
            asked = client.request(OutboundRequest("GET", HERE))
            error = self.failureResultOf(asked, OutboundError)
            self.assertIn(reason, str(error.value), type(cause).__name__)


# A reactor is a module; its interfaces are known only at run time.
running: Any = reactor


class CertificateTests(TestCase):
    """The certificates that the client trusts, and what it says about others."""

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
