"""Tests the client for callbacks: how it writes requests and parses answers."""

from __future__ import annotations

import hmac

from rsscloud_broker.interfaces import Signing
from tests.outbound.scripted import OK, CallbackClientTestCase, Scripted
from tests.outbound.servers import Pages, make_callback_client, page, serve


class RequestTests(CallbackClientTestCase):
    async def test_bytes(self) -> None:
        headers = {"content-type": "text/xml", "x-a": "é"}
        await self.answer(OK, method="POST", headers=headers, body=b"<a/>")
        self.assertEqual(
            self.server.requests,
            [
                f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUser-Agent: tests/1.0\r\n"
                "Content-Type: text/xml\r\nX-A: é\r\nContent-Length: 4\r\n\r\n<a/>".encode()
            ],
        )

    async def test_length_of_an_empty_body(self) -> None:
        for method, expected in (("GET", False), ("HEAD", False), ("POST", True), ("PUT", True)):
            await self.answer(OK, method=method)
            self.assertEqual(b"Content-Length: 0\r\n" in self.server.requests[0], expected)

    async def test_user_agent_of_the_caller(self) -> None:
        await self.answer(OK, headers={"user-agent": "other"})
        self.assertEqual(self.server.requests[0].lower().count(b"user-agent"), 1)
        self.assertIn(b"User-Agent: other\r\n", self.server.requests[0])

    async def test_signature(self) -> None:
        signing = Signing("sesamé", "sha384")
        await self.answer(OK, method="POST", body=b"<a/>", signing=signing)
        digest = hmac.new("sesamé".encode(), b"<a/>", "sha384").hexdigest()
        self.assertIn(f"\r\nX-Hub-Signature: sha384={digest}\r\n".encode(), self.server.requests[0])
        self.assertNotIn("sesam", repr(signing))

    async def test_names_are_spelled_as_everybody_does(self) -> None:
        """Some receivers compare header names letter by letter."""
        given = ("content-type", "x-hub-signature", "soapaction", "LINK", "if-none-match")
        await self.answer(OK, headers=dict.fromkeys(given, "a"))
        names = [line.partition(b":")[0] for line in self.server.requests[0].split(b"\r\n")[1:]]
        self.assertEqual(
            names[: len(given) + 2],
            [b"Host", b"User-Agent", b"Content-Type", b"X-Hub-Signature", b"SOAPAction", b"Link",
             b"If-None-Match"],
        )  # fmt: skip

    async def test_headers_of_more_than_a_line(self) -> None:
        self.serve()
        for value in ("a\r\nx-evil: 1", "a\nb", "a\rb", "a\0", "\ud800"):
            for headers in ({"x-a": value}, {value: "a"}):
                reason = await self.refusal(self.begin(make_callback_client(), headers=headers))
                self.assertIn("must be one line of text", reason)
        self.assertEqual(self.server.connections, [])


class AnswerTests(CallbackClientTestCase):
    async def test_forms(self) -> None:
        for answer, expected in (
            (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
            (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", (304, b"")),
            (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, (200, b"hello")),
            (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 9 + OK, (200, b"hello")),
            (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
            (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", (200, b"ok")),
            (b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
            (b"HTTP/1.1 200 OK\r\nX: \xe9\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n",
                (200, b"hello"),
            ),
            (OK + b"HTTP/1.1 500 What\r\nX: y\r\nContent-Length: 2\r\n\r\nno", (200, b"hello")),
            (OK + b"garbage \x00\xff", (200, b"hello")),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 1500, (200, b"x" * 1000)),
        ):
            reply = await self.answer(answer)
            self.assertEqual((reply.status, reply.body), expected, answer[:40])
            self.assertNotIn("x-trailer", reply.headers, answer[:40])

    async def test_headers_are_those_of_the_answer(self) -> None:
        """Names are in lower case; the last of several values counts, without spaces around it."""
        pages = Pages({"/": page(200, b"", x_one=" 1 ")})
        reply = await self.begin(make_callback_client(), f"http://127.0.0.1:{serve(self, pages)}/")
        self.assertEqual(reply.headers["x-one"], "1")

    async def test_in_pieces(self) -> None:
        def drip(connection: Scripted) -> None:
            for number in range(len(OK)):
                connection.transport.write(OK[number : number + 1])

        self.assertEqual((await self.answer(drip)).body, b"hello")

    async def test_what_is_no_answer(self) -> None:
        for answer, why in (
            (b"220 mail.example ESMTP\r\n", "the answer is not HTTP"),
            (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 0x6\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "headers have more than 500 fields"),
            (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 80_000, "headers are larger than 65536"),
            (b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000, "headers are larger than 65536"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 80_000,
                "headers are larger than 65536",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
                + b"X: y\r\n" * 20_000,
                "headers are larger than 65536",
            ),
        ):
            self.serve(answer)
            self.assertIn(why, await self.refusal(self.begin(make_callback_client())), answer[:40])
            await self.server.connections[0].lost

    async def test_closed_too_early(self) -> None:
        for answer in (b"", b"HTTP/1.1 200 OK\r\nContent-Le", OK[:-1]):

            def close(connection: Scripted, answer: bytes = answer) -> None:
                connection.transport.write(answer)
                connection.transport.loseConnection()

            self.serve(close)
            reason = await self.refusal(self.begin(make_callback_client()))
            self.assertIn("lost before the answer was whole: it was closed", reason)

    async def test_answer_before_the_request_was_read(self) -> None:
        """The server answers at once, and never reads the rest of the request."""

        def answer(connection: Scripted) -> None:
            connection.transport.pauseProducing()
            connection.transport.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

        reply = await self.answer(answer, method="POST", body=b"x" * 20_000_000)
        self.assertEqual(reply.status, 413)
        (connection,) = self.server.connections
        connection.transport.resumeProducing()  # otherwise it does not see the end
        await connection.lost
        self.assertLess(sum(map(len, self.server.requests)), 20_000_000)
