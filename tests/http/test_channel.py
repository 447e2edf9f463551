"""A request is judged in the same way whether it arrives whole or byte by byte."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.config import Http
from rsscloud_broker.http import limits
from tests import examples
from tests.front_doors.exchange import call
from tests.front_doors.fixture import House

HELLO = call("rssCloud.hello", "x").encode()
POST = b"POST /RPC2 HTTP/1.1\r\nHost: b\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(HELLO)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(HELLO), HELLO)

GOOD = {
    "a call": POST + LENGTH + b"\r\n" + HELLO,
    "chunks": POST + CHUNKED + b"\r\n" + CHUNKS,
    "a page": b"GET /docs HTTP/1.1\r\nHost: b\r\n\r\n",
    "a page with a body": b"GET /docs HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/1.0": b"GET /docs HTTP/1.0\r\n\r\n",
    "the last one": b"GET /docs HTTP/1.1\r\nConnection: close\r\n\r\n",
    "two": POST + LENGTH + b"\r\n" + HELLO + b"GET /docs HTTP/1.1\r\n\r\n",
    "a blank line before": b"\r\n" + POST + LENGTH + b"\r\n" + HELLO,
    "a header of two lines": POST + b"X: a\r\n b\r\n" + LENGTH + b"\r\n" + HELLO,
    "spaces": POST + b"content-LENGTH: \t %d \t\r\n\r\n" % len(HELLO) + HELLO,
    "zeros": POST + b"Content-Length: 000%d\r\n\r\n" % len(HELLO) + HELLO,
    "empty": POST + b"Content-Length: 0\r\n\r\n",
    "without a length": POST + b"\r\n",
    "empty headers": POST + b"X:\r\nX: \r\n" + LENGTH + b"\r\n" + HELLO,
    "another method": b"PUT /docs HTTP/1.1\r\n\r\n",
    "an unlikely method": b"get /docs HTTP/1.1\r\n\r\n",
    "a whole URL": b"GET http://b/docs HTTP/1.1\r\n\r\n",
    "a target beyond ASCII": b"GET /docs?\xd0\xb6=\xe9 HTTP/1.1\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\n\r\n",
    "a body too large": POST + b"Content-Length: 2000\r\n\r\n" + b"x" * 2000,
    "a length too long": POST + b"Content-Length: %s\r\n\r\n" % (b"0" * 99) + HELLO,
    "bytes beyond ASCII": POST + b"X: \xff\xfe\r\n" + LENGTH + b"\r\n" + HELLO,
    "forty-nine headers": POST + b"X: y\r\n" * 48 + b"\r\n",
    "many headers": POST + b"X: y\r\n" * 300 + b"\r\n",
    "large headers": POST + b"X: %s\r\n\r\n" % (b"y" * 15_000),
}
BAD = {
    "both lengths": POST + LENGTH + CHUNKED + b"\r\n" + CHUNKS,
    "both lengths, the other way": POST + CHUNKED + LENGTH + b"\r\n" + CHUNKS,
    "two lengths": POST + LENGTH + LENGTH + b"\r\n" + HELLO,
    "two lengths that differ": POST + b"Content-Length: 1\r\n" + LENGTH + b"\r\n" + HELLO,
    "a sign": POST + b"Content-Length: +%d\r\n\r\n" % len(HELLO) + HELLO,
    "a list": POST + b"Content-Length: 1, 1\r\n\r\n" + b"x",
    "an empty length": POST + b"Content-Length:\r\n\r\n",
    "digits of another script": POST + b"Content-Length: \xd9\xa1\r\n\r\nx",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "identity and a length": POST + LENGTH + b"Transfer-Encoding: identity\r\n\r\n" + HELLO,
    "a length and identity": POST + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\n" + HELLO,
    "identity and chunks": POST + b"Transfer-Encoding: Identity\r\n" + CHUNKED + b"\r\n" + CHUNKS,
    "an empty coding": POST + b"Transfer-Encoding:\r\n" + LENGTH + b"\r\n" + HELLO,
    "chunks of HTTP/1.0": POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNKS,
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "chunked twice": POST + CHUNKED + CHUNKED + b"\r\n" + CHUNKS,
    "a bad chunk": POST + CHUNKED + b"\r\nxyz\r\n",
    "a space before a colon": POST + b"Content-Length : 1\r\n\r\nx",
    "no colon": POST + b"Content-Length\r\n\r\n",
    "no name": POST + b": x\r\n\r\n",
    "NUL": POST + b"X: a\0b\r\n\r\n",
    "a bare return": POST + b"X: a\rb\r\n\r\n",
    "a bare line feed": POST + b"X: a\nContent-Length: 1\r\n\r\nx",
    "line feeds only": b"GET /docs HTTP/1.1\nHost: b\n\n\r\n",
    "too many headers": POST + b"X: y\r\n" * 600 + b"\r\n",
    "too large headers": POST + (b"X: %s\r\n" % (b"y" * 9000)) * 2 + b"\r\n",
    "two blank lines before": b"\r\n\r\n" + POST + b"\r\n",
    "HTTP/2": b"GET /docs HTTP/2.0\r\n\r\n",
    "TLS": b"\x16\x03\x01\r\n",
    "no version": b"GET /docs\r\n\r\n",
    "a method beyond ASCII": b"G\xc3\x89T /docs HTTP/1.1\r\n\r\n",
    "two spaces": b"GET  /docs HTTP/1.1\r\n\r\n",
    "a tab": b"GET\t/docs HTTP/1.1\r\n\r\n",
}
STATUS = re.compile(rb"HTTP/1\.1 [2-5][0-9]{2} ")
TOO_LARGE = {"too many headers", "too large headers"}


class ChannelTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = House(self, http=Http(body_limit=1000))

    def outcome(self, pieces: list[bytes]) -> tuple[list[bytes], bool]:
        """The lines of the answer without the date, and whether the connection stays open."""
        exchange = self.house.connect()
        for piece in pieces:
            if exchange.open:
                exchange.send(piece)
        stays = exchange.open
        if stays:
            exchange.transport.loseConnection()
        lines = exchange.transport.value().split(b"\r\n")
        return [line for line in lines if not line.startswith(b"Date: ")], stays

    def assert_same(self, request: bytes, why: str) -> list[bytes]:
        whole = self.outcome([request])
        self.assertEqual(whole, self.outcome([bytes([byte]) for byte in request]), why)
        self.assertEqual(self.flushLoggedErrors(), [])
        return whole[0]

    def test_what_is_answered(self) -> None:
        for why, request in GOOD.items():
            lines = self.assert_same(request, why)
            self.assertRegex(lines[0], b"^HTTP/1.[01] [2345]", why)
            self.assertNotIn(b"HTTP/1.1 400 Bad Request", lines, why)

    def test_what_is_refused(self) -> None:
        for why, request in BAD.items():
            lines = self.assert_same(request, why)
            status = 431 if why in TOO_LARGE else 400
            self.assertTrue(lines[0].startswith(b"HTTP/1.1 %d " % status), (why, lines))
            if why != "a bad chunk":  # which Twisted alone sees
                self.assertRegex(lines[-1], rb"^[A-Z].+[.1]\n$", why)

    def test_what_a_refusal_says(self) -> None:
        for why, reason in (
            ("two lengths", b"one Content-Length or one Transfer-Encoding, and not both.\n"),
            ("too many headers", b"A request has at most 500 headers.\n"),
            ("too large headers", b"All headers together must not exceed 16384 bytes.\n"),
            ("no version", b"A request must begin with a line such as: GET /docs HTTP/1.1\n"),
            ("two blank lines before", b"A request must begin with a line such as: GET"),
            ("another coding", b"The only Transfer-Encoding of a request is chunked"),
            ("a sign", b"Content-Length must be a number.\n"),
            ("a space before a colon", b"A header must be a name, a colon at once, and a value."),
        ):
            self.assertIn(reason, self.outcome([BAD[why]])[0][-1], why)

    def test_blank_line_before_each_request(self) -> None:
        """Some browsers send one after a form."""
        lines, stays = self.outcome([GOOD["a blank line before"] * 3])
        self.assertEqual(sum(b"<boolean>1</boolean>" in line for line in lines), 3)
        self.assertTrue(stays)

    def test_counts_begin_anew_for_each_request(self) -> None:
        lines, stays = self.outcome([GOOD["many headers"], GOOD["large headers"]] * 2)
        self.assertEqual(len(STATUS.findall(b"\n".join(lines))), 4)
        self.assertTrue(stays)

    def test_which_request_is_the_last(self) -> None:
        """RFC 9110, section 7.6.1: the header is a list, perhaps in several lines."""
        for value, is_last in (
            (b"close", True),
            (b"close, TE", True),
            (b"TE ,\tClose", True),
            (b"keep-alive\r\nConnection: close", True),
            (b"keep-alive", False),
            (b"TE, closed", False),
        ):
            request = b"GET /docs HTTP/1.1\r\nConnection: %s\r\n\r\n" % value
            lines, stays = self.outcome([request])
            self.assertEqual((stays, b"Connection: close" in lines), (not is_last, is_last), value)

    def test_what_follows_the_last_request_is_ignored(self) -> None:
        lines, _ = self.outcome([GOOD["the last one"] + b"no request\r\n\r\n"])
        self.assertEqual(len(STATUS.findall(b"\n".join(lines))), 1)

    def test_one_answer_however_much_is_wrong(self) -> None:
        """What follows a refusal in the same packet is not answered too."""
        wrong = POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\nno chunk\r\n"
        answered = b"\n".join(self.outcome([wrong])[0])
        self.assertEqual(answered.count(b"HTTP/1.1 400"), 1)
        self.assertIn(b"The only Transfer-Encoding of a request is chunked", answered)

    def test_one_answer_however_long_the_client_stays(self) -> None:
        self.patch(limits, "REQUEST_TIMEOUT", 1.0)
        self.house = House(self, http=Http(body_limit=1000))
        for why, headers in {
            "coding and length": b"Transfer-Encoding: identity\r\nContent-Length: 2000\r\n\r\n",
            "two bad headers": b"X: a\rb\r\nY: c\r\nZ: %s\r\n\r\n" % (b"z" * 20_000),
            "it does not end in time": b"X: a\rb\r\nY: c\r\n",
        }.items():
            request = POST + headers
            for pieces in ([request], [bytes([byte]) for byte in request]):
                exchange = self.house.connect()
                for piece in pieces:
                    exchange.send(piece)
                self.house.clock.advance(1.5)
                self.assertTrue(exchange.open, why)
                self.assertEqual([answer.status for answer in exchange.answers()], [400], why)
                self.house.clock.advance(2.0)
                self.assertFalse(exchange.open, why)

    def test_one_after_the_other(self) -> None:
        """Requests of every kind may follow one another."""
        for first in (GOOD["chunks"], GOOD["a call"], GOOD["a blank line before"]):
            for second in (GOOD["chunks"], GOOD["a call"], GOOD["a blank line before"]):
                lines, stays = self.outcome([first, second])
                self.assertEqual(sum(b"<boolean>1</boolean>" in line for line in lines), 2)
                self.assertTrue(stays)

    def test_the_rest_of_a_request_is_none(self) -> None:
        """Text in a body that looks like a request is part of the body."""
        body = GOOD["a page"]
        head = b"POST /ping HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (len(body) + 1)
        for pieces in ([head + b"x", body], [head, b"x" + body], [head, b"x", body]):
            lines, _ = self.outcome(pieces)
            self.assertEqual(sum(line.startswith(b"HTTP/1.1 ") for line in lines), 1)

    @settings(max_examples=examples(100), deadline=None)
    @given(
        st.sampled_from(sorted({**GOOD, **BAD})),
        st.floats(0, 1),
        st.integers(0, 3),
        st.sampled_from(
            [b"", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\0", b"0", b"x", b"\xff"]
        ),
        st.lists(st.floats(0, 1), max_size=3),
    )
    def test_any_pieces(
        self, why: str, where: float, cut: int, insert: bytes, cuts: list[float]
    ) -> None:
        request = {**GOOD, **BAD}[why]
        start = int(where * len(request))
        request = request[:start] + insert + request[start + cut :]
        ends = [0, *sorted(int(each * len(request)) for each in cuts), len(request)]
        pieces = [request[a:b] for a, b in pairwise(ends)]
        self.assertEqual(
            self.outcome([request]),
            self.outcome([piece for piece in pieces if piece]),
            (request, pieces),
        )
