from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseFailed
from twisted.web.iweb import IAgent
from zope.interface import implementer

from rsscloud_broker.client.any_address import AnyAddress
from rsscloud_broker.client.web import ClientError, Web
from rsscloud_broker.testing.clock import Clock
from tests.client.recording import Answer, Server, SilentServer, web_to


@implementer(IAgent)
class BrokenAgent:
    """An agent that connects to nothing."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def request(self, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return fail(self.error)


class WebTests(SynchronousTestCase):
    """HTTP exchanges, and the errors of those that fail."""

    def test_an_answer(self) -> None:
        server = Server(Answer(b"<rss/>", 200, {"Content-Type": "text/xml"}))
        web = web_to(server)
        reply = self.successResultOf(web.get("http://a.example/x?y=1"))
        self.assertEqual(
            (reply.status, reply.headers["content-type"], reply.body), (200, "text/xml", b"<rss/>")
        )
        self.assertEqual((server.asked[0].method, server.asked[0].uri), ("GET", "/x?y=1"))

    def test_an_empty_answer(self) -> None:
        web = web_to(Server(Answer(b"", 204)))
        reply = self.successResultOf(web.get("http://a.example/"))
        self.assertEqual((reply.success, reply.body), (True, b""))

    def test_reading_follows_redirects(self) -> None:
        server = Server(Answer(b"", 301, {"Location": "/new"}), Answer(b"here"))
        web = web_to(server)
        reply = self.successResultOf(web.get("http://a.example/old"))
        self.assertEqual(reply.body, b"here")
        self.assertEqual([asked.uri for asked in server.asked], ["/old", "/new"])

    def test_a_post_is_not_redirected(self) -> None:
        server = Server(Answer(b"", 307, {"Location": "/new"}))
        posting = web_to(server).post("http://a.example/old", {}, b"x")
        reply = self.successResultOf(posting)
        self.assertEqual((reply.status, reply.success, len(server.asked)), (307, False, 1))

    def test_too_large(self) -> None:
        web = web_to(Server(Answer(b"x" * 10_001)))
        error = self.failureResultOf(web.get("http://a.example/"), ClientError)
        self.assertIn("larger than 10000 bytes", str(error.value))

    def test_the_deadline(self) -> None:
        clock = Clock()
        web = web_to(SilentServer(), clock)
        getting = Deferred.fromCoroutine(web.get("http://a.example/"))
        clock.advance(29)
        self.assertNoResult(getting)
        clock.advance(1)
        error = self.failureResultOf(getting, ClientError)
        self.assertEqual(str(error.value), "http://a.example/: no answer within 30 seconds")

    def test_not_a_url(self) -> None:
        web = web_to(Server(Answer()))
        for url in ("nonsense", "http://[::1", "ftp://a.example/"):
            with self.subTest(url):
                getting = Deferred.fromCoroutine(web.get(url))
                self.assertIn(url, str(self.failureResultOf(getting, ClientError).value))

    def test_no_connection(self) -> None:
        refused = ConnectError(string="it is closed")
        for cause, reason in (
            (refused, "it is closed"),
            (DNSLookupError("no such name"), "no such name"),
            (ResponseFailed([Failure(refused)]), "it is closed"),
        ):
            with self.subTest(type(cause).__name__):
                web = Web(AnyAddress(BrokenAgent(cause), Clock()))
                getting = Deferred.fromCoroutine(web.get("http://a.example/"))
                error = self.failureResultOf(getting, ClientError)
                self.assertIn("http://a.example/: ", str(error.value))
                self.assertIn(reason, str(error.value))
