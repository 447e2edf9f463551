"""Routes that take larger bodies than others, and forms with files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request
from zope.interface import implementer

from rsscloud_broker.config import Http
from rsscloud_broker.counters import Counters
from rsscloud_broker.front_doors.limits import HTTPLimits, bounded_site
from rsscloud_broker.front_doors.site import Root
from rsscloud_broker.interfaces import IFrontDoor, Route, RoutesOnly
from rsscloud_broker.testing.clock import Clock
from tests.front_doors.exchange import Answer, Exchange, address, request_bytes

FILES = "multipart/form-data"


class Echo(Resource):
    """Answers with the length of the body, and with the fields of the form."""

    isLeaf = True

    def render(self, request: Request) -> bytes:
        assert request.content is not None
        return b"%d %r" % (len(request.content.read()), sorted(request.args or {}))


@implementer(IFrontDoor)
class Door(RoutesOnly):
    name = "large"

    def routes(self) -> Sequence[Route]:
        return [
            Route("/small", "PUT", Echo()),
            Route("/feeds/*", "PUT", Echo(), body_limit=2000),
            Route("/feeds/large", "PUT", Echo(), body_limit=3000),
            Route("/feeds/*", "GET", Echo()),
            Route("/tiny", "PUT", Echo(), body_limit=10),
            Route("/upload", "POST", Echo(), content_types=frozenset({FILES}), body_limit=2000),
            Route("/form", "POST", Echo()),
        ]


class LargeBodiesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.limits = HTTPLimits(Http(body_limit=1000), Clock())
        root = Root([Door()], "http://broker.example")
        self.factory = bounded_site(root, self.limits, Counters())

    def ask(
        self, method: str, path: str, size: int, headers: Mapping[str, str] | None = None
    ) -> Answer:
        where = address("192.0.2.7")
        exchange = Exchange(self.factory.buildProtocol(where), where)
        exchange.send(request_bytes(method, path, b"x" * size, headers))
        return exchange.answer()

    def largest(self, path: str) -> list[int]:
        """The statuses of bodies of 10, 1000, 1001, 2000, 2001 and 3001 bytes."""
        sizes = (10, 1000, 1001, 2000, 2001, 3001)
        return [self.ask("PUT", path, size).status for size in sizes]

    def test_limits_of_routes(self) -> None:
        for path, statuses in (
            ("/small", [200, 200, 413, 413, 413, 413]),
            ("/feeds/dave/rss.xml", [200, 200, 200, 200, 413, 413]),
            ("/feeds/dave/rss.xml?x=/small", [200, 200, 200, 200, 413, 413]),
            ("/feeds/large", [200, 200, 200, 200, 200, 413]),
        ):
            self.assertEqual(self.largest(path), statuses, path)

    def test_operator_may_allow_more(self) -> None:
        """A route never lowers the limit of the operator."""
        self.assertEqual(self.ask("PUT", "/tiny", 1000).status, 200)
        self.limits.change(Http(body_limit=2500))
        self.assertEqual(self.ask("PUT", "/feeds/dave/rss.xml", 2500).status, 200)
        self.assertEqual(self.ask("PUT", "/feeds/dave/rss.xml", 2501).status, 413)

    def test_refusal_names_the_limit_of_the_route(self) -> None:
        answer = self.ask("PUT", "/feeds/dave/rss.xml", 2001)
        self.assertEqual(answer.text, "The body must not be larger than 2000 bytes.\n")

    def test_body_in_chunks(self) -> None:
        where = address("192.0.2.7")
        for size, status in ((2000, 200), (2001, 413)):
            exchange = Exchange(self.factory.buildProtocol(where), where)
            head = b"PUT /feeds/x HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n"
            exchange.send(head + b"%x\r\n" % size + b"x" * size + b"\r\n0\r\n\r\n")
            self.assertEqual(exchange.answer().status, status)

    def test_forms_with_files(self) -> None:
        """The front door gets the body as it came, and no fields."""
        headers = {"Content-Type": f"{FILES}; boundary=b"}
        answer = self.ask("POST", "/upload?next=1", 2000, headers)
        self.assertEqual((answer.status, answer.text), (200, "2000 [b'next']"))
        self.assertEqual(self.ask("POST", "/upload", 2001, headers).status, 413)
        refused = self.ask("POST", "/form", 10, headers)
        self.assertEqual(refused.status, 415)
        self.assertIn("Send forms as application/x-www-form-urlencoded", refused.text)

    def test_memory_for_the_largest_body(self) -> None:
        limits = HTTPLimits(Http(body_limit=1000), Clock())
        size = 64 * 1024 * 1024

        @implementer(IFrontDoor)
        class Huge(RoutesOnly):
            name = "huge"

            def routes(self) -> Sequence[Route]:
                return [Route("/x", "PUT", Echo(), body_limit=size)]

        self.assertFalse(limits.bodies.take(size, "192.0.2.7"))
        bounded_site(Root([Huge()], "http://broker.example"), limits, Counters())
        self.assertTrue(limits.bodies.take(size, "192.0.2.7"))
