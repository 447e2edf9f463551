"""Routes that take larger bodies than others, and forms with files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from xmlrpc.client import Binary, Boolean, DateTime, dumps, loads

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC

from rsscloud_broker.config import Http
from rsscloud_broker.counters import Counters
from rsscloud_broker.errors import DocumentTooCostly, ParsingUnavailable
from rsscloud_broker.http.answering import Answers
from rsscloud_broker.http.bodies import SMALL
from rsscloud_broker.http.connections import LimitedConnections
from rsscloud_broker.http.large_calls import LARGE
from rsscloud_broker.http.limits import HTTPLimits, bounded_site
from rsscloud_broker.http.requests import body_of
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Route, SoapOperation, SoapService
from rsscloud_broker.testing.clock import Clock
from rsscloud_broker.testing.parsing import parse_here
from rsscloud_broker.wire import soap
from tests.front_doors.exchange import Answer, ask, connected, request_bytes
from tests.front_doors.fixture import PUBLIC_URL
from tests.http.test_site import Door

FILES = "multipart/form-data"


class Echo(Resource):
    """Answers with the length of the body, and with the fields of the form."""

    isLeaf = True

    def render(self, request: Request) -> bytes:
        assert request.content is not None
        return b"%d %r" % (len(request.content.read()), sorted(request.args or {}))


PAGES = (
    Route("/small", "PUT", Echo()),
    Route("/feeds/*", "PUT", Echo(), body_limit=2000),
    Route("/feeds/large", "PUT", Echo(), body_limit=3000),
    Route("/feeds/*", "GET", Echo()),
    Route("/tiny", "PUT", Echo(), body_limit=10),
    Route("/upload", "POST", Echo(), content_types=frozenset({FILES}), body_limit=2000),
    Route("/form", "POST", Echo()),
)


def site(door: Door, limits: HTTPLimits, **options: Any) -> LimitedConnections:
    """A site with a front door."""
    return bounded_site(Root([door], PUBLIC_URL, **options), limits, Counters())


class LargeBodiesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.limits = HTTPLimits(Http(body_limit=1000), Clock())
        self.factory = site(Door(pages=PAGES), self.limits)

    def ask(
        self, method: str, path: str, size: int, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return ask(self.factory, method, path, b"x" * size, headers)

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

    def test_paths_as_people_type_them(self) -> None:
        """A body has the limit of the route that answers it, however the path is written."""
        headers = {"Content-Type": f"{FILES}; boundary=b"}
        for path in ("/feeds/large/", "/Feeds/Large", "http://broker.example/feeds/large"):
            self.assertEqual(self.largest(path), [200, 200, 200, 200, 200, 413], path)
        for path in ("/upload/", "/Upload", "http://broker.example/upload?next=1"):
            self.assertEqual(self.ask("POST", path, 2000, headers).status, 200, path)
            self.assertEqual(self.ask("POST", path, 2001, headers).status, 413, path)

    def test_refusal_names_the_limit_of_the_route(self) -> None:
        answer = self.ask("PUT", "/feeds/dave/rss.xml", 2001)
        self.assertEqual(answer.text, "The body must not be larger than 2000 bytes.\n")

    def test_body_in_chunks(self) -> None:
        for size, status in ((2000, 200), (2001, 413)):
            exchange = connected(self.factory)
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
        self.assertFalse(limits.bodies.take(size, "192.0.2.7"))
        site(Door(pages=[Route("/x", "PUT", Echo(), body_limit=size)]), limits)
        self.assertTrue(limits.bodies.take(size, "192.0.2.7"))


class HangUpTests(SynchronousTestCase):
    """What a client has asked for is done, also if it hangs up meanwhile."""

    def test_the_body_can_still_be_read(self) -> None:
        for size in (1, 2 * SMALL):
            gate: Deferred[None] = Deferred()
            bodies: list[bytes] = []

            async def take(
                request: Request, gate: Deferred[None] = gate, bodies: list[bytes] = bodies
            ) -> bytes:
                await gate
                bodies.append(body_of(request))
                return b""

            door = Door(pages=[Route("/x", "PUT", Answers(take))])
            limits = HTTPLimits(Http(body_limit=2 * SMALL), Clock())
            exchange = connected(site(door, limits))
            exchange.send(request_bytes("PUT", "/x", b"x" * size))
            exchange.transport.loseConnection()
            gate.callback(None)
            self.assertEqual(bodies, [b"x" * size])


class Keep(XMLRPC):
    """Remembers what it was called with."""

    body_limit = 3 * LARGE

    def __init__(self) -> None:
        super().__init__(allowNone=True)
        self.got: list[Any] = []

    def xmlrpc_keep(self, *values: Any) -> int:
        self.got = list(values)
        return len(values)

    async def operation(self, values: Mapping[str, Any], source: str) -> str:
        self.got = [dict(values), source]
        return "kept"


class LargeCallsTests(SynchronousTestCase):
    """Calls that are parsed by another process."""

    def setUp(self) -> None:
        self.keep = Keep()
        operations = {"keep": SoapOperation(self.keep.operation, ("one", "two"))}
        self.door = Door("calls", (), {"door": self.keep}, [SoapService("/door", operations)])
        self.owners: list[str] = []
        self.error: Exception | None = None
        limits = HTTPLimits(Http(body_limit=LARGE), Clock())
        self.factory = site(self.door, limits, parse=self.parse)

    def parse(self, owner: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.owners.append(owner)
        if self.error is not None:
            return fail(self.error)
        return parse_here(owner, function, *args)

    def ask(self, body: bytes, path: str = "/RPC2") -> Answer:
        return ask(self.factory, "POST", path, body, {"content-type": "text/xml"})

    def test_calls_may_be_larger_than_all_routes(self) -> None:
        small = Door("small", [Route("/x", "PUT", Echo(), body_limit=LARGE + 1)])
        root = Root([self.door, small], PUBLIC_URL, parse=self.parse)
        self.assertEqual(root.largest_body, Keep.body_limit)

    def test_values_stay_what_they_are(self) -> None:
        values = ("x" * LARGE, 7, 1.5, Boolean(True), None, Binary(b"\0\xff"), {"a": ["b"]})
        date = DateTime("20260102T03:04:05")
        body = dumps((*values, [date]), "door.keep", allow_none=True).encode()
        self.assertEqual(loads(self.ask(body).body)[0], (8,))
        self.assertEqual(self.owners, ["192.0.2.7"])
        large = self.keep.got
        small = dumps((*values[1:], [date]), "door.keep", allow_none=True).encode()
        self.assertEqual(loads(self.ask(small).body)[0], (7,))
        self.assertEqual((large[0], large[1:]), (values[0], self.keep.got))
        self.assertEqual(len(self.owners), 1)

    def test_paths_as_people_type_them(self) -> None:
        body = dumps(("x" * LARGE,), "door.keep").encode()
        for path in ("/RPC2/", "/Rpc2", "/XMLRPC.php/"):
            self.assertEqual(loads(self.ask(body, path).body)[0], (1,), path)

    def test_soap(self) -> None:
        body = soap.encode_call("keep", {"one": "x" * LARGE, "two": "y"})
        answer = self.ask(body, "/door")
        self.assertEqual(soap.decode_response(answer.body), "kept")
        self.assertEqual(self.keep.got, [{"one": "x" * LARGE, "two": "y"}, "192.0.2.7"])

    def test_what_cannot_be_read(self) -> None:
        for document, path, said in (
            (b"<methodCall>%b", "/RPC2", "<int>-32700</int>"),
            (b"<methodCall>%b</methodCall>", "/RPC2", "names no method"),
            (b"<Envelope>%b</Envelope>", "/door", "SOAP-ENV:Client"),
        ):
            self.assertIn(said, self.ask(document % (b" " * LARGE), path).text)

    def test_no_parser(self) -> None:
        body = dumps(("x" * LARGE,), "door.keep").encode()
        self.error = DocumentTooCostly("it takes too much")
        self.assertIn("it takes too much", self.ask(body).text)
        self.error = ParsingUnavailable("too many wait")
        answer = self.ask(body)
        self.assertEqual(answer.status, 503)
        self.assertIn("too much to read right now", answer.text)
        self.assertEqual(self.keep.got, [])
