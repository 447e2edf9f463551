"""The outbound client of commands: it follows redirects, and says what failed as others do."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from zope.interface.verify import verifyObject

from rsscloud_broker.client.any_address import AnyAddress
from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import IOutbound, OutboundReply
from tests.client.recording import Answer, Server, web_to

MOVED = Answer(b"", 302, {"Location": "/there"})


class AnyAddressTests(SynchronousTestCase):
    def asked(self, resource: Resource, redirects: int = 5) -> Deferred[OutboundReply]:
        client = AnyAddress(web_to(resource))
        verifyObject(IOutbound, client)
        headers = {"Accept": "application/atom+xml"}
        url = "http://a.example/here"
        return Deferred.fromCoroutine(client.request("GET", url, headers, b"", redirects))

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

    def test_too_many_redirects(self) -> None:
        server = Server(MOVED)
        reply = self.successResultOf(self.asked(server, 3))
        self.assertEqual((reply.status, len(server.asked)), (302, 4))

    def test_too_large(self) -> None:
        error = self.failureResultOf(self.asked(Server(Answer(b"x" * 10_001))), OutboundError)
        self.assertIn("larger than 10000 bytes", str(error.value))

    def test_get_only(self) -> None:
        client = AnyAddress(web_to(Server(Answer())))
        posted = Deferred.fromCoroutine(client.request("POST", "http://a.example/", {}, b"x"))
        self.failureResultOf(posted, ValueError)
