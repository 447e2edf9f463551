"""Requests within the limits that try to keep the broker busy or to make it fail."""

from __future__ import annotations

import time
from typing import Any

from twisted.internet.testing import StringTransportWithDisconnection
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Http
from rsscloud_broker.http.limits import MAX_FIELDS
from tests.front_doors.exchange import FORM, Answer, Exchange, call, envelope, request_bytes
from tests.front_doors.fixture import FEED, House

MULTIPART = "multipart/form-data; boundary=B"
HELLO = call("rssCloud.hello").encode()
SIZE = 1_000_000
#: Seconds that a request may take; the attacks tested here once took many more.
LITTLE = 2


class _RequestsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self, http=Http(body_limit=2 * SIZE))

    def post(self, path: str, body: bytes, kind: str) -> Answer:
        """Send a request that must take little time and log nothing; return the answer."""
        begun = time.process_time()
        answer = self.house.ask("POST", path, body, {"Content-Type": kind})
        self.assertLess(time.process_time() - begun, LITTLE)
        self.assertEqual(self.flushLoggedErrors(), [])
        return answer


class MultipartTests(_RequestsTests):
    def test_a_form_is_refused(self) -> None:
        part = b'--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\nx\r\n--B--\r\n'
        for path in ("/ping", "/pleaseNotify", "/pingSiteForm", "/RPC2", "/docs", "/nothing"):
            for body in (part % b"url", part % (b";" * SIZE), part * 10_000, b""):
                for kind in (MULTIPART, "Multipart/Form-Data", "multipart/form-data;boundary*0*=x"):
                    answer = self.post(path, body, kind)
                    said = "Send forms as application/x-www-form-urlencoded, please.\n"
                    self.assertEqual((answer.status, answer.text), (415, said))

    def test_a_call_is_still_a_call(self) -> None:
        self.assertIn("<boolean>1</boolean>", self.post("/RPC2", HELLO, MULTIPART).text)
        ping = envelope("ping", {"url": FEED})
        for kind in (MULTIPART, "multipart/related; boundary=B"):
            self.assertIs(self.house.result(self.post("/soap", ping, kind)), True)


class FormTests(_RequestsTests):
    def test_as_many_fields_as_there_may_be(self) -> None:
        body = b"&".join([b"a=b"] * (MAX_FIELDS - 1) + [b"url=" + FEED.encode()])
        self.assertEqual(self.post("/rsscloud/ping", body, FORM).xml.get("success"), "true")

    def test_too_many_fields(self) -> None:
        for path in ("/rsscloud/ping", "/ping", "/pingSiteForm"):
            for field in (b"url=&", b"&"):
                answer = self.post(path, field * (SIZE // len(field)), FORM)
                self.assertEqual(answer.status, 413)
                self.assertEqual(answer.text, f"A form has at most {MAX_FIELDS} fields.\n")
                self.assertEqual(int(answer.headers["content-length"]), len(answer.body))

    def test_too_many_parameters(self) -> None:
        for method in ("GET", "POST", "HEAD"):
            answer = self.house.ask(method, "/pingSiteForm?" + "url=&" * MAX_FIELDS)
            self.assertEqual(answer.status, 400)
            if method != "HEAD":
                self.assertEqual(answer.text, f"A query has at most {MAX_FIELDS} parameters.\n")

    def test_a_refusal_leaves_the_connection_open(self) -> None:
        exchange = self.house.connect()
        for _ in range(2):
            exchange.send(request_bytes("POST", "/ping", b"&" * 2000, {"Content-Type": FORM}))
        exchange.send(request_bytes("GET", "/docs"))
        self.assertEqual([answer.status for answer in exchange.answers()], [413, 413, 200])

    def test_a_document_is_no_form(self) -> None:
        document = call("rssCloud.ping", FEED + "?" + "&amp;" * 2000).encode()
        self.assertIn("<boolean>1</boolean>", self.post("/RPC2", document, FORM).text)

    def test_only_an_ampersand_ends_a_field(self) -> None:
        """A ``;`` is like any letter (URL Standard, application/x-www-form-urlencoded)."""
        url = f"{FEED};v=1;w"
        self.house.topics.pages[url] = b"<rss/>"
        answer = self.post("/rsscloud/ping", f"url={url}&a".encode(), FORM)
        self.assertEqual(answer.xml.get("success"), "true", answer.text)
        answer = self.post(f"/rsscloud/ping?url={url}", b"", FORM)
        self.assertEqual(answer.xml.get("success"), "true", answer.text)
        self.assertEqual(self.house.topics.fetched, [url, url])

    def test_many_semicolons(self) -> None:
        answer = self.post("/rsscloud/ping", b"a=" + b";a=" * (SIZE // 3) + b"&url=x", FORM)
        self.assertEqual(answer.xml.get("success"), "false", answer.text)

    def test_fields_and_parameters_together(self) -> None:
        answer = self.house.ask(
            "POST", "/pleaseNotify?port=80&path=/a", b"path=/n", {"Content-Type": f"{FORM};x"}
        )
        self.assertIn("protocol.", answer.xml.get("msg", ""))
        self.assertNotIn("port", answer.xml.get("msg", ""))


class ElementsTests(_RequestsTests):
    def test_too_many_elements(self) -> None:
        for body in (
            envelope("ping", {"url": FEED}).replace(b"<url ", b"<url/>" * (SIZE // 6) + b"<url "),
            call("rssCloud.ping", "<array><data/></array>" * 30_000).encode(),
        ):
            self.assertIn("elements", self.post("/soap", body, "text/xml").text)


class ContentTypeTests(_RequestsTests):
    def test_charsets(self) -> None:
        document = call("weblogUpdates.ping", "ж", "http://a.example/").encode("windows-1251")
        for kind in (
            "text/xml; charset=windows-1251",
            'text/xml;charset="Windows-1251"',
            "text/xml; CHARSET = 'cp1251'; x=y",
            "application/xml; a=b; charset=cp1251",
        ):
            self.assertIn("Thanks", self.post("/RPC2", document, kind).text)
        self.assertEqual({ping.name for ping in self.house.pings()}, {"ж"})

    def test_strange_ones(self) -> None:
        for parameter in (
            "charset*=\xff'en'x%ff",
            "charset*=idna'en'" + "%ff" * 10,
            "charset*" + "9" * 5000 + "=x",
            "charset*0*=x; charset*1*=y",
            "charset=" + "(" * 8000,
            'charset="' + '\\"' * 4000,
            "charset=" + " " * 8000,
            "charset=",
            "charset=\xe4",
            "charset=" + "a" * 8000,
            ";charset" * 1000,
            ";" * 8000,
            *(f"charset={name}" for name in ("rot13", "zlib", "punycode", "idna", "undefined")),
        ):
            kind = f"text/xml; {parameter}"
            self.assertIn("<boolean>1</boolean>", self.post("/RPC2", HELLO, kind).text, kind)
            kind = f"{FORM}; {parameter}"
            answer = self.post("/rsscloud/ping", b"url=" + FEED.encode(), kind)
            self.assertEqual(answer.xml.get("success"), "true", kind)


class HeadTests(_RequestsTests):
    """Strange request lines and headers."""

    def assert_refused(self, status: int, data: bytes) -> None:
        exchange = self.house.connect()
        exchange.send(data)
        exchange.send(request_bytes("GET", "/docs"))
        (answer,) = exchange.answers()
        self.assertEqual(answer.status, status)
        self.house.clock.advance(5)
        self.assertFalse(exchange.open)
        self.assertEqual(self.flushLoggedErrors(), [])
        self.assertEqual(self.house.timers(), [])

    def test_length(self) -> None:
        head = b"POST /RPC2 HTTP/1.1\r\nHost: b\r\ncontent-length:"
        for digits in (b"9" * 16, b"9" * 5000, b"0" * 5000, b"x" * 5000):
            self.assert_refused(413, head + digits + b"\r\n\r\n")
            self.assert_refused(413, head + digits + b"\r\nno header\r\n\r\n" + HELLO)
            self.assert_refused(413, head + b" " + digits + b" \r\nX: y\r\n")

    def test_lines(self) -> None:
        long = b"a" * 20_000
        self.assert_refused(414, b"GET /" + long + b" HTTP/1.1\r\nHost: b\r\n\r\n")
        self.assert_refused(414, b"GET /" + long)
        self.assert_refused(431, b"GET / HTTP/1.1\r\nX: " + long + b"\r\n\r\n")
        self.assert_refused(431, b"GET / HTTP/1.1\r\nX: " + long)

    def test_a_long_line_after_an_earlier_request(self) -> None:
        exchange = self.house.connect()
        exchange.send(request_bytes("GET", "/docs") + b"GET /" + b"a" * 20_000)
        self.assertEqual([answer.status for answer in exchange.answers()], [200, 414])


class _Unread(StringTransportWithDisconnection):
    """A transport whose buffers never empty, so that it only ends when it is aborted."""

    def loseConnection(self) -> None:
        self.disconnecting = True

    def abortConnection(self) -> None:
        super().loseConnection()


class UnreadAnswerTests(SynchronousTestCase):
    """The broker hangs up on a client that does not read its answer."""

    def setUp(self) -> None:
        self.house = House(self, http=Http(idle_timeout=60.0))

    def connect(self) -> Exchange:
        """A connection with a client that reads nothing."""
        exchange = self.house.connect()
        assert exchange.protocol is not None
        unread = _Unread(peerAddress=exchange.transport.getPeer())
        unread.protocol = exchange.protocol
        unread.producer = exchange.transport.producer
        unread.streaming = exchange.transport.streaming
        exchange.transport = unread
        exchange.protocol.transport = unread
        return exchange

    def test_at_the_end_of_a_connection(self) -> None:
        exchange = self.connect()
        exchange.send(request_bytes("GET", "/docs", headers={"Connection": "close"}))
        self.assertEqual(exchange.answer().status, 200)
        self.house.clock.advance(59)
        self.assertTrue(exchange.open)
        self.house.clock.advance(1)
        self.assertFalse(exchange.open)
        self.assertEqual(self.house.timers(), [])

    def test_in_the_middle_of_an_answer(self) -> None:
        exchange = self.connect()
        self.house.topics.silent = True  # the answer is not complete
        body = b"url=" + FEED.encode()
        exchange.send(request_bytes("POST", "/rsscloud/ping", body, {"Content-Type": FORM}))
        producer: Any = exchange.transport.producer
        for _ in range(3):
            producer.pauseProducing()
            self.house.clock.advance(59)
            producer.resumeProducing()
            self.house.clock.advance(120)
        self.assertTrue(exchange.open)
        producer.pauseProducing()
        self.house.clock.advance(60)
        self.assertFalse(exchange.open)
