"""Errors are pages in a browser, and plain text for programs."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import Request

from rsscloud_broker.config import Http
from rsscloud_broker.errors import TooMany, Unavailable
from rsscloud_broker.http.answering import RETRY_AFTER, Answers
from rsscloud_broker.http.security import SECURITY_HEADERS
from rsscloud_broker.http.site import Root
from rsscloud_broker.interfaces import Route
from rsscloud_broker.wire.negotiation import wants_page
from tests.front_doors.exchange import FORM, Answer
from tests.front_doors.fixture import PUBLIC_URL, House
from tests.http.test_site import Door

#: The Accept headers of browsers, after a link or a form.
BROWSERS = {
    "Chromium": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,"
    "image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
    "Firefox": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Safari": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Lynx": "text/html, text/plain, text/sgml, text/css, application/xhtml+xml, */*;q=0.01",
}

#: The Accept headers of programs; None for none.
PROGRAMS = {
    "curl": "*/*",
    "http.client": None,
    "HttpURLConnection": "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2",
    "Java 21": "text/html, image/gif, image/jpeg, */*; q=0.2",
    "axios": "application/json, text/plain, */*",
    "feedparser": "application/atom+xml,application/rdf+xml,application/rss+xml,"
    "application/x-netcdf,application/xml;q=0.9,text/xml;q=0.2,*/*;q=0.1",
    "XML only": "text/xml",
    "text before HTML": "text/plain, text/html;q=0.5, application/xhtml+xml;q=0.5",
    "no HTML": "text/html;q=0, application/xhtml+xml, */*",
}

FIREFOX = {"Accept": BROWSERS["Firefox"]}


class WantsPageTests(SynchronousTestCase):
    def test_browsers(self) -> None:
        for name, accept in BROWSERS.items():
            for others in (["text/plain"], ["text/xml", "application/xml", "application/json"]):
                if name == "Lynx" and others == ["text/plain"]:
                    continue  # this browser accepts plain text as well
                self.assertIs(wants_page(accept, others), True, (name, others))

    def test_programs(self) -> None:
        for name, accept in PROGRAMS.items():
            self.assertIs(wants_page(accept, ["text/plain", "text/xml"]), False, name)

    def test_whoever_takes_nothing_else(self) -> None:
        self.assertIs(wants_page("text/html", ["text/xml"]), True)
        self.assertIs(wants_page("TEXT/HTML", ["text/xml"]), True)
        self.assertIs(wants_page("text/html, text/*;q=0.1", ["text/xml"]), False)


def headers_of(accept: str | None) -> dict[str, str]:
    return {} if accept is None else {"Accept": accept}


class ErrorPagesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self)

    def assert_page(self, answer: Answer, status: int, text: str) -> None:
        """The answer is a page that says what was wrong."""
        self.assertEqual((answer.status, answer.headers["content-type"]), (status, _HTML))
        self.assertEqual(answer.headers["content-length"], str(len(answer.body)))
        for name, value in SECURITY_HEADERS.items():
            self.assertEqual(answer.headers[name.decode()], value.decode())
        self.assertIn(text, answer.html.xpath("string(//main)"))

    def both(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[Any, Any]:
        """The answers to a browser and to a program."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return (
            self.house.ask(method, path, body, named | FIREFOX),
            self.house.ask(method, path, body, named | {"Accept": "*/*"}),
        )

    def test_each_status(self) -> None:
        big = b"a=1&" * 1000
        table: list[tuple[int, str, str, bytes, dict[str, str]]] = [
            (404, "GET", "/nothing", b"", {}),
            (404, "POST", "/nothing", b"a=1", {"Content_Type": FORM}),
            (404, "GET", "/2026/01/01/01.xml", b"", {}),
            (405, "GET", "/rsscloud/ping", b"", {}),
            (405, "POST", "/docs", b"", {}),
            (413, "POST", "/pingSiteForm", big, {"Content_Type": FORM}),
            (415, "POST", "/pingSiteForm", b"--", {"Content_Type": "multipart/form-data"}),
            (415, "POST", "/websub", b"{}", {"Content_Type": "application/json"}),
            (503, "GET", "/changes.xml", b"", {}),
        ]
        for status, method, path, body, headers in table:
            page, text = self.both(method, path, body, **headers)
            self.assertEqual((text.status, text.headers["content-type"]), (status, _PLAIN), path)
            self.assertNotIn("vary", text.headers)
            self.assert_page(page, status, text.text.strip())
            self.assertIn("/", page.html.xpath("//main//a/@href"), (method, path))
            for name in ("allow", "retry-after", "accept-encoding"):
                self.assertEqual(page.headers[name], text.headers[name], name)
            self.assertIn("Accept", page.headers.get_all("vary"), (method, path))

    def test_parameters_that_are_needed(self) -> None:
        self.house = _house(self, Resource(), "x")
        page, text = self.both("GET", "/page")
        self.assertEqual(text.text, "This address needs parameters that did not come: ?x\n")
        self.assert_page(page, 400, text.text.strip())

    def test_what_an_answer_that_takes_a_while_ends_in(self) -> None:
        table: list[tuple[Exception, int, str]] = [
            (TooMany("there were 5", 7), 429, "7"),
            (Unavailable("the disk is full"), 503, str(RETRY_AFTER)),
            (CancelledError(), 503, str(RETRY_AFTER)),
        ]
        for error, status, later in table:
            self.house = _failing(self, error)
            page, text = self.both("GET", "/page")
            self.assertEqual((text.status, text.headers["content-type"]), (status, _PLAIN))
            self.assert_page(page, status, text.text.strip())
            self.assertEqual(page.headers["retry-after"], later)
        self.flushLoggedErrors()

    def test_a_bug(self) -> None:
        self.house = _failing(self, KeyError("a bug"))
        page, _ = self.both("GET", "/page")
        self.assert_page(page, 500, "The broker made a mistake. It has been logged.")
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 2)

    def test_a_body_that_is_too_large(self) -> None:
        """It is refused before it has arrived, and the connection ends with the answer."""
        self.house = House(self, http=Http(body_limit=100))
        head = f"POST /pingSiteForm HTTP/1.1\r\nHost: b\r\nAccept: {FIREFOX['Accept']}\r\n".encode()
        for rest in (
            b"Content-Length: 101\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101 + b"\r\n",
        ):
            exchange = self.house.connect()
            exchange.send(head + rest)
            self.assert_page(exchange.answer(), 413, "must not be larger than 100 bytes")

    def test_head(self) -> None:
        for path, status in (("/nothing", 404), ("/rsscloud/ping", 405), ("/changes.xml", 503)):
            page, text = self.both("HEAD", path)
            self.assertEqual((page.status, page.headers["content-type"]), (status, _HTML))
            self.assertEqual((text.status, text.headers["content-type"]), (status, _PLAIN))
            self.assertEqual((page.body, text.body), (b"", b""))

    def test_markup_is_escaped(self) -> None:
        self.house = _failing(self, TooMany("<b>x", 7))
        page, text = self.both("GET", "/page")
        self.assertIn("<b>x", text.text)
        self.assertNotIn("<b>", page.text)
        self.assert_page(page, text.status, "<b>x")

    def test_what_comes_in_pieces_stays_as_it_is(self) -> None:
        async def pieces(request: Request) -> None:
            request.setResponseCode(404)
            request.setHeader("content-type", "text/plain")
            request.write(b"There is ")
            request.write(b"nothing.")
            request.finish()

        self.house = _house(self, Answers(pieces))
        page, text = self.both("GET", "/page")
        self.assertEqual((page.text, text.text), ("There is nothing.", "There is nothing."))

    def test_what_is_no_sentence_stays_as_it_is(self) -> None:
        page, text = self.both("POST", "/soap", b"<broken", Content_Type="text/xml")
        self.assertEqual((page.status, page.body), (500, text.body))
        self.assertEqual(page.headers.get_content_type(), "text/xml")


_HTML = "text/html; charset=utf-8"
_PLAIN = "text/plain; charset=utf-8"


def _failing(case: SynchronousTestCase, error: BaseException) -> House:
    """A house with a page that raises an error."""

    async def page(request: Request) -> bytes:
        raise error

    return _house(case, Answers(page))


def _house(case: SynchronousTestCase, page: Resource, *requires: str) -> House:
    """A house with a page."""
    route = Route("/page", "GET", page, frozenset(requires))
    return House(case, root=Root([Door(pages=[route])], PUBLIC_URL))
