"""The site: which front door answers a request, and the headers of all answers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any
from xmlrpc.client import Fault, dumps, loads

from attrs import field, frozen
from twisted.internet.defer import CancelledError
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker import errors
from rsscloud_broker.http.answering import RETRY_AFTER, Answers
from rsscloud_broker.http.security import SECURITY_HEADERS
from rsscloud_broker.http.site import Root
from rsscloud_broker.http.xmlrpc import procedure
from rsscloud_broker.interfaces import IFrontDoor, Route, SoapOperation, SoapService
from rsscloud_broker.wire.negotiation import preferred
from tests.front_doors.exchange import Answer, call
from tests.front_doors.fixture import FEED, HOME, OTHER_FEED, PUBLIC_URL, House


class Says(Resource):
    """A page that answers with a text."""

    isLeaf = True

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def render_GET(self, request: Request) -> bytes:
        return self.text.encode()

    render_POST = render_GET


@implementer(IFrontDoor)
@frozen
class Door:
    """A front door with the routes, procedures and services of a test."""

    name: str = "door"
    pages: Sequence[Route] = ()
    handlers: Mapping[str, XMLRPC] = field(factory=dict)
    services: Sequence[SoapService] = ()

    def routes(self) -> Sequence[Route]:
        return self.pages

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return self.handlers

    def soap_services(self) -> Sequence[SoapService]:
        return self.services


def get(path: str, *requires: str, method: str = "GET") -> Route:
    """A route whose page answers with its path and the parameters that it requires."""
    return Route(path, method, Says(f"{path} {' '.join(requires)}"), frozenset(requires))


class RoutesTests(SynchronousTestCase):
    def serve(self, *doors: Door) -> House:
        return House(self, root=Root(doors, PUBLIC_URL))

    def test_the_longest_path_wins(self) -> None:
        house = self.serve(Door(pages=[get("/*"), get("/a/*"), get("/a/b"), get("/a/b/*")]))
        table = {
            "/* ": ("/", "/x", "/a", "/../a/b", "/%61/b"),
            "/a/* ": ("/a/", "/a/x/y", "/a//b"),
            "/a/b ": ("/a/b",),
            "/a/b/* ": ("/a/b/c",),
        }
        for text, paths in table.items():
            for path in paths:
                self.assertEqual(house.get(path).text, text, path)

    def test_thousands_of_slashes_cost_no_more_than_one(self) -> None:
        house = self.serve(Door(pages=[get("/*"), get("/a/*")]))
        path = "/a" * 5000
        house.get("/a/b")
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.assertEqual(house.get(path).text, "/a/* ")
        self.assertLess(tracemalloc.get_traced_memory()[1], 100 * len(path))

    def test_the_most_parameters_win(self) -> None:
        pages = [get("/p"), get("/p", "a", "b"), get("/p", "a"), get("/p", "c")]
        house = self.serve(Door(pages=pages))
        table = {
            "/p ": ("/p", "/p?x=1", "/p?b=1"),
            "/p a": ("/p?a=1", "/p?A=", "/p?a"),
            "/p a b": ("/p?b=1&a=2&c=3",),
            "/p c": ("/p?c",),
        }
        for text, paths in table.items():
            for path in paths:
                self.assertEqual(house.get(path).text, text, path)

    def test_form_parameters_count(self) -> None:
        house = self.serve(Door(pages=[get("/p", method="POST"), get("/p", "a", method="POST")]))
        self.assertEqual(house.form("/p", {"A": "1"}).text, "/p a")
        self.assertEqual(house.form("/p", {"b": "1"}).text, "/p ")

    def test_not_found(self) -> None:
        house = House(self)
        for path in ("/nothing", "/soap/x", "/2026", "/rsscloud/x"):
            answer = house.get(path)
            found = (answer.status, answer.headers.get_content_type())
            self.assertEqual(found, (404, "text/plain"), path)

    def test_methods_that_are_not_allowed(self) -> None:
        house = House(self)
        table = {
            "OPTIONS, POST": ("GET /rsscloud/ping", "GET /RPC2", "GET /RPC2/", "HEAD /RPC2"),
            "GET, HEAD, OPTIONS": ("POST /docs",),
            "GET, HEAD, OPTIONS, POST": ("PUT /", "DELETE /ping", "BREW /soap"),
        }
        for allowed, requests in table.items():
            for each in requests:
                method, path = each.split()
                answer = house.ask(method, path)
                self.assertEqual((answer.status, answer.headers["allow"]), (405, allowed), each)

    def test_refused_heads_fill_no_log(self) -> None:
        """Twisted would log the whole URL of each, which may hold a secret."""
        house = House(self)
        for path in ("/RPC2?key=secret", "/c", "/rsscloud/ping"):
            with capturedLogs() as logs:
                answer = house.ask("HEAD", path)
            self.assertEqual([formatEvent(each) for each in logs], [], path)
            self.assertIn(answer.status, (400, 405))
            shown = house.ask("GET", path)
            self.assertEqual(answer.headers["content-length"], shown.headers["content-length"])
            self.assertEqual(answer.headers["content-type"], shown.headers["content-type"])
            self.assertEqual(answer.body, b"")

    def test_options(self) -> None:
        house = House(self)
        for path in ("/rsscloud/ping", "/changes.xml", "/2026/01/01/00.xml", "/docs"):
            allowed = "OPTIONS, POST" if path == "/rsscloud/ping" else "GET, HEAD, OPTIONS"
            answer = house.ask("OPTIONS", path)
            self.assertEqual((answer.status, answer.headers["allow"]), (200, allowed), path)
            self.assertEqual(answer.body, b"")
        empty = self.serve(Door())
        self.assertEqual(empty.ask("OPTIONS", "/x").status, 404)

    def test_scripts_of_other_sites(self) -> None:
        """Scripts may send requests without cookies, and read the answers."""
        house = House(self)
        for path in ("/rsscloud/ping", "/RPC2", "/pingSiteForm", "/changes.xml", "/2026/x.xml"):
            for method in ("GET", "POST", "OPTIONS"):
                answer = house.ask(method, path)
                self.assertEqual(answer.headers["access-control-allow-origin"], "*", path)
                self.assertNotIn("access-control-allow-credentials", answer.headers)
        answer = house.ask("OPTIONS", "/RPC2")
        self.assertEqual(answer.headers["access-control-allow-methods"], "OPTIONS, POST")
        for name in ("authorization", "content-type"):
            self.assertIn(name, answer.headers["access-control-allow-headers"])
        self.assertIn("location", answer.headers["access-control-expose-headers"])
        # JavaScript sends a FormData so.
        form = {"Content-Type": "multipart/form-data; boundary=B"}
        answer = house.ask("POST", "/rsscloud/ping", b"--B--", form)
        self.assertEqual((answer.status, answer.headers["access-control-allow-origin"]), (415, "*"))
        for path in ("/docs", "/websub"):
            for method in ("GET", "OPTIONS"):
                answer = house.ask(method, path)
                self.assertNotIn("access-control-allow-origin", answer.headers, path)

    def test_paths_as_people_type_them(self) -> None:
        house = House(self)
        for path in ("/RPC2/", "/Rpc2", "/xmlrpc", "/XMLRPC.php/", "/ping/RPC2/"):
            self.assertIs(house.xmlrpc("rssCloud.hello", path=path), True)
        for path in ("/pleaseNotify/", "/PLEASENOTIFY", "/rssCloud/pleasenotify/"):
            self.assertIn("notifyResult", house.form(path, {"a": "b"}).text)
        self.assertIs(house.result(house.soap("ping", {"url": FEED}, path="/RssCloud/")), True)
        self.assertEqual(house.get("/Docs/").status, 200)
        self.assertEqual(house.get("/PingSiteForm").status, 200)

    def test_parameters_that_are_needed(self) -> None:
        house = self.serve(Door(pages=[get("/a", "x", "y"), get("/a", "x", "y", "z")]))
        for path, needed in (("/a", "?x&y"), ("/a?x=1", "?x&y")):
            answer = house.get(path)
            said = f"This address needs parameters that did not come: {needed}\n"
            self.assertEqual((answer.status, answer.text), (400, said))
            self.assertEqual(house.ask("HEAD", path).status, 400)

    def test_a_body_at_a_call_path_is_there_for_a_route(self) -> None:
        class Echo(Resource):
            isLeaf = True

            def render_POST(self, request: Request) -> bytes:
                assert request.content is not None
                body: bytes = request.content.read()
                return body + repr(request.args).encode()

        house = self.serve(Door(pages=[Route("/", "POST", Echo())]))
        self.assertEqual(house.ask("POST", "/", b'{"a": 1}').text, '{"a": 1}{}')
        self.assertEqual(house.form("/", {"a": "1"}).text, "a=1{b'a': [b'1']}")

    def test_a_known_path_is_not_left_to_a_wildcard(self) -> None:
        pages = [get("/a", method="POST"), get("/b", "x"), get("/*")]
        house = self.serve(Door(pages=pages))
        self.assertEqual([house.get(path).status for path in ("/a", "/b", "/c")], [405, 400, 200])

    def test_head(self) -> None:
        house = House(self)
        for path in ("/", "/docs", "/pingSiteForm", "/soap?wsdl", "/style.css"):
            whole, head = house.ask("GET", path), house.ask("HEAD", path)
            self.assertEqual((head.status, head.body), (200, b""), path)
            for name in ("content-type", "content-length"):
                self.assertEqual(head.headers[name], whole.headers[name], path)

    def test_security_headers_are_on_every_answer(self) -> None:
        house = House(self)
        answers = [
            house.get("/"),
            house.get("/pingSiteForm", url="x"),
            house.get("/nothing"),
            house.get("/RPC2"),
            house.get("/changes.xml"),
            house.get("/soap?wsdl"),
            house.form("/RPC2", {"a": "b"}),
            house.form("/ping", {"url": FEED}),
            house.soap("ping", {"url": FEED}),
        ]
        house.break_store()
        answers.append(house.form("/ping", {"url": OTHER_FEED}))
        self.flushLoggedErrors()
        self.assertEqual(answers[-1].status, 503)
        for answer in answers:
            for name, value in SECURITY_HEADERS.items():
                self.assertEqual(answer.headers[name.decode()], value.decode())


TROUBLE = call("trouble.make").encode()


class Trouble(XMLRPC):
    """Procedures that fail."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    @procedure(["boolean"])
    async def xmlrpc_make(self, request: Request) -> bool:
        """Fail."""
        raise self._error


class FailuresTests(SynchronousTestCase):
    """A bug is logged and answered with 500, an unavailable store with 503 until it is back."""

    def serve(self, error: Exception) -> House:
        async def page(request: Request) -> bytes:
            raise error

        async def operation(values: Mapping[str, Any], caller: str) -> Any:
            raise error

        door = Door(
            pages=[Route("/page", "GET", Answers(page))],
            handlers={"trouble": Trouble(error)},
            services=[SoapService("/trouble", {"make": SoapOperation(operation, ())})],
        )
        return House(self, root=Root([door], PUBLIC_URL))

    def test_a_bug(self) -> None:
        house = self.serve(KeyError("a bug"))
        mistake = "The broker made a mistake. It has been logged."
        page = house.get("/page")
        self.assertEqual((page.status, page.text), (500, f"{mistake}\n"))
        self.assertEqual(house.fault("trouble.make"), (-32603, mistake))
        self.assertEqual(house.soap_fault(house.soap("make", {})), ("Server", mistake))
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 3)

    def test_a_refusal(self) -> None:
        house = self.serve(errors.Refused("not today"))
        self.assertEqual(house.fault("trouble.make"), (4, "not today"))
        self.assertEqual(house.soap_fault(house.soap("make", {})), ("Client", "not today"))

    def test_too_many(self) -> None:
        house = self.serve(errors.TooMany("there were 5", 7))
        page = house.get("/page")
        self.assertEqual((page.status, page.headers["retry-after"]), (429, "7"))
        text = "there were 5; try again in 7 seconds"
        self.assertEqual(page.text, f"This was not accepted: {text}.\n")
        self.assertEqual(house.fault("trouble.make"), (4, text))
        self.assertEqual(house.soap_fault(house.soap("make", {})), ("Client", text))

    def test_what_is_unavailable(self) -> None:
        """Callers are notified what it is, in the form of the protocol, but not what the log
        says."""
        calls = [{"methodName": "trouble.make", "params": []}]
        several = dumps((calls,), "system.multicall").encode()
        for error, told in (
            (errors.StoreUnavailable("/var/lib/secret"), "its database"),
            (errors.DiskFull("/var/lib/secret"), "The disk of this server is nearly full"),
            (errors.CallsUnavailable("secret.example"), "call other servers"),
            (errors.MemoryUnavailable("secret.example"), "no memory"),
            (errors.Unavailable("secret.example"), "cannot do this"),
        ):
            house = self.serve(error)
            by_xmlrpc, by_soap = house.ask("POST", "/RPC2", TROUBLE), house.soap("make", {})
            by_multicall = house.ask("POST", "/RPC2", several)
            for answer in (house.get("/page"), by_xmlrpc, by_multicall, by_soap):
                self.assert_unavailable(answer)
                self.assertIn(told, answer.text)
                self.assertNotIn("secret", answer.text)
            text = f"{error.public_text} Please try again later."
            self.assertRaisesRegex(Fault, text, loads, by_xmlrpc.text)
            self.assertIn("<faultcode>SOAP-ENV:Server</faultcode>", by_soap.text)
            self.assertIn(f"<faultstring>{text}</faultstring>", by_soap.text)

    def test_a_broker_that_stops(self) -> None:
        house = self.serve(CancelledError())
        answer = house.get("/page")
        self.assertEqual((answer.status, answer.text), (503, "The broker is stopping.\n"))
        for each in (answer, house.ask("POST", "/RPC2", TROUBLE), house.soap("make", {})):
            self.assertIn("The broker is stopping.", each.text)
            self.assertEqual((each.status, each.headers["retry-after"]), (503, str(RETRY_AFTER)))

    def test_every_door_when_the_store_is_unavailable(self) -> None:
        house = House(self)
        house.subscribe()
        house.break_store()
        registration = {"port": "80", "path": "/", "protocol": "http-post", "url1": FEED}
        weblog = {"weblogname": "A", "weblogurl": HOME}
        answers = [
            house.form("/rsscloud/pleaseNotify", registration),
            house.form("/rsscloud/ping", {"url": FEED}),
            house.form("/ping", {"url": HOME, "name": "A"}),
            house.get("/pingSiteForm", name="A", url=HOME),
            house.get("/", name="A", url=HOME),
            house.get("/rss/ping", u=FEED),
            house.ask("POST", "/RPC2", call("weblogUpdates.ping", "A", HOME).encode()),
            house.ask("POST", "/RPC2", call("rssCloud.ping", FEED).encode()),
            house.soap("ping", weblog, action='"/weblogUpdates"'),
            house.soap("ping", {"url": FEED}),
            house.soap("pleaseNotify", {**registration, "urlList": [FEED]}),
        ]
        for answer in answers:
            self.assert_unavailable(answer)
        self.assertEqual(house.answers(503), len(answers))
        self.assertEqual(self.flushLoggedErrors(), [])

    def assert_unavailable(self, answer: Answer) -> None:
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, str(RETRY_AFTER)))
        self.assertIn("Please try again later.", answer.text)

    def test_pages_that_need_no_store_are_still_there(self) -> None:
        house = House(self)
        house.break_store()
        for path in ("/", "/docs", "/pingSiteForm", "/soap?wsdl"):
            self.assertEqual(house.get(path).status, 200)


class WhoseFaultTests(SynchronousTestCase):
    """A call that cannot be parsed gets a fault of the protocol that it probably is."""

    def test_malformed(self) -> None:
        house = House(self)
        table: list[tuple[str, dict[str, str], bool]] = [
            ("/RPC2", {}, False),
            ("/", {"Content-Type": "text/xml"}, False),
            ("/soap", {}, True),
            ("/weblogUpdates", {}, True),
            ("/RPC2", {"SOAPAction": '""'}, True),
        ]
        for path, headers, is_soap in table:
            for body in (b"<broken", b"not XML", b"", b"<other/>"):
                answer = house.ask("POST", path, body, headers)
                if is_soap:
                    self.assertEqual(house.soap_fault(answer)[0], "Client", (path, body))
                else:
                    self.assertEqual((answer.status, answer.xml[0].tag), (200, "fault"))

    def test_each_protocol_at_the_others_path(self) -> None:
        house = House(self)
        self.assertIs(house.xmlrpc("rssCloud.hello", path="/soap"), True)
        self.assertIs(house.result(house.soap("ping", {"url": FEED}, path="/RPC2")), True)


class NegotiationTests(SynchronousTestCase):
    def test_preferred(self) -> None:
        offered = ["text/xml", "application/json"]
        table = {
            "text/xml": (None, "", " ", "*/*", "*/*, application/json;q=0.1"),
            "application/json": (
                *("application/*", "APPLICATION/JSON", "application/json;charset=utf-8"),
                *("application/json, */*", "text/xml;q=0, */*"),
                "text/xml;q=0.2, application/json;q=0.3",
            ),
            None: (
                *("*/*;q=0", "text/html", "text/xml;q=0", "text/xml;q=much", "text/xml;q=nan"),
                *("text/xml;q=-1", ",;,", "xml"),
            ),
        }
        for kind, headers in table.items():
            for accept in headers:
                self.assertEqual(preferred(accept, offered), kind, accept)
