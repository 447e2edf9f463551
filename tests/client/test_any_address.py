"""The outbound client of commands: it follows redirects, and says what failed as others do."""

from __future__ import annotations

from gzip import compress
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseFailed
from twisted.web.iweb import IAgent
from twisted.web.resource import Resource
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rsscloud_broker.client.any_address import SECONDS, AnyAddress
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply, OutboundRequest, Signing
from rsscloud_broker.testing.clock import Clock
from tests.client.recording import Answer, Server, SilentServer, client_to

MOVED = Answer(b"", 302, {"Location": "/there"})


@implementer(IAgent)
class BrokenAgent:
    """An agent that connects to nothing."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def request(self, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return fail(self.error)


class AnyAddressTests(SynchronousTestCase):
    def asked(self, resource: Resource, redirects: int = 5) -> Deferred[OutboundReply]:
        client = client_to(resource)
        verifyObject(IOutbound, client)
        headers = {"Accept": "application/atom+xml"}
        url = "http://a.example/here"
        return Deferred.fromCoroutine(
            client.request(OutboundRequest("GET", url, headers, b"", redirects))
        )

    def test_answer(self) -> None:
        server = Server(Answer(b"<feed/>", 203, {"ETag": '"1"', "Link": "<a>; rel=hub"}))
        reply = self.successResultOf(self.asked(server))
        self.assertEqual(
            (reply.status, reply.body, reply.url), (203, b"<feed/>", "http://a.example/here")
        )
        self.assertEqual((reply.headers["etag"], reply.headers["link"]), ('"1"', "<a>; rel=hub"))

    def test_redirects(self) -> None:
        reply = self.successResultOf(self.asked(Server(MOVED, MOVED, Answer(b"x"))))
        self.assertEqual((reply.status, reply.url), (200, "http://a.example/there"))
        self.assertEqual(len(reply.hops), 2)

    def test_redirect_in_utf_8(self) -> None:
        server = Server(Answer(b"", 301, {"Location": "/caf\xe9"}), Answer(b"x"))
        reply = self.successResultOf(self.asked(server))
        self.assertEqual(reply.url, "http://a.example/caf%C3%A9")
        self.assertEqual(server.asked[-1].uri, "/caf%C3%A9")

    def test_too_many_redirects(self) -> None:
        server = Server(MOVED)
        reply = self.successResultOf(self.asked(server, 3))
        self.assertEqual((reply.status, len(server.asked)), (302, 4))

    def test_too_large(self) -> None:
        error = self.failureResultOf(self.asked(Server(Answer(b"x" * 10_001))), OutboundError)
        self.assertIn("larger than 10000 bytes", str(error.value))

    def test_compressed_answers(self) -> None:
        gzipped = Answer(compress(b"<feed/>"), 200, {"Content-Encoding": "gzip"})
        reply = self.successResultOf(self.asked(Server(gzipped)))
        self.assertEqual((reply.body, reply.compressed), (b"<feed/>", True))
        bomb = Answer(compress(bytes(1_000_000)), 200, {"Content-Encoding": "gzip"})
        error = self.failureResultOf(self.asked(Server(bomb)), OutboundError)
        self.assertIn("larger than 10000 bytes", str(error.value))
        members = Answer(compress(b"<feed>") + compress(b"</feed>"), 200, gzipped.headers)
        self.assertEqual(self.successResultOf(self.asked(Server(members))).body, b"<feed></feed>")
        cut_off = Answer(compress(b"<feed/>")[:-1], 200, gzipped.headers)
        error = self.failureResultOf(self.asked(Server(cut_off)), OutboundError)
        self.assertIn("the answer breaks off", str(error.value))
        empty = Answer(b"", 200, gzipped.headers)
        self.assertEqual(self.successResultOf(self.asked(Server(empty))).body, b"")
        twice = Answer(compress(compress(b"x")), 200, {"Content-Encoding": "gzip, gzip"})
        error = self.failureResultOf(self.asked(Server(twice)), OutboundError)
        self.assertIn("compressed more than once", str(error.value))

    def test_no_answer_in_time(self) -> None:
        clock = Clock()
        client = client_to(SilentServer(), clock)
        asked = Deferred.fromCoroutine(client.request(OutboundRequest("GET", "http://a.example/")))
        clock.advance(SECONDS - 1)
        self.assertNoResult(asked)
        clock.advance(1)
        error = self.failureResultOf(asked, OutboundError)
        self.assertIn("no answer within 30 seconds", str(error.value))

    def test_international_url(self) -> None:
        server = Server(Answer(b"x"))
        client = client_to(server)
        url = "http://bücher.example/ä"
        reply = self.successResultOf(client.request(OutboundRequest("GET", url)))
        self.assertEqual(reply.body, b"x")

    def test_a_body(self) -> None:
        server = Server(Answer(b"x"))
        posted = client_to(server).request(
            OutboundRequest("POST", "http://a.example/", {"Content-Type": "text/plain"}, b"hello")
        )
        self.assertEqual(self.successResultOf(posted).body, b"x")
        self.assertEqual((server.asked[0].method, server.asked[0].body), ("POST", b"hello"))

    def test_signs_nothing(self) -> None:
        signed = client_to(Server(Answer())).request(
            OutboundRequest("GET", "http://a.example/", signing=Signing("s", "sha256"))
        )
        self.failureResultOf(signed, ValueError)

    def test_not_a_url(self) -> None:
        for url in ("nonsense", "http://[::1", "ftp://a.example/"):
            with self.subTest(url):
                asked = client_to(Server(Answer())).request(OutboundRequest("GET", url))
                self.failureResultOf(asked, OutboundError)

    def test_no_connection(self) -> None:
        refused = ConnectError(string="it is closed")
        for cause, reason in (
            (refused, "it is closed"),
            (DNSLookupError("no such name"), "no such name"),
            (ResponseFailed([Failure(refused)]), "it is closed"),
        ):
            with self.subTest(type(cause).__name__):
                client = AnyAddress(BrokenAgent(cause), Clock())
                asked = client.request(OutboundRequest("GET", "http://a.example/"))
                error = self.failureResultOf(asked, OutboundError)
                self.assertIn(reason, str(error.value))
