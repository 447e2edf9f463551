"""Tests both outbound clients over real sockets: requests without an answer, or without one in
time.
"""

from __future__ import annotations

from socket import socket

from twisted.internet.defer import CancelledError, Deferred
from twisted.web.server import Request

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.interfaces import OutboundReply
from tests.outbound.scripted import ClientTestCase, RawFactory
from tests.outbound.servers import (
    Answer,
    Client,
    Names,
    black_hole,
    half,
    listen,
    make_callback_client,
    silence,
)


class FailureTests(ClientTestCase):
    async def test_url_that_is_not_called(self) -> None:
        client = self.make_client()
        for url in ("javascript:alert(1)", "http://a:b@127.0.0.1/", "http://127.0.0.1:99999/"):
            self.assertTrue(await self.refusal(self.begin(client, url)))
        self.assertEqual(client.names.asked, [])

    async def test_url_with_control_characters(self) -> None:
        for path in ("/\r\nX-Evil: 1", "/a\nb", "/\x00", "/\t", "/a b"):
            self.assertTrue(await self.refused(path))
        self.assertEqual(self.pages.seen, [])

    async def test_connection_refused(self) -> None:
        with socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            reason = await self.refusal(self.begin(self.make_client(), f"http://127.0.0.1:{port}/"))
        self.assertIn(f"no connection to 127.0.0.1 port {port}", reason)
        self.assertIn("refused", reason)

    async def test_garbage(self) -> None:
        for says in (b"220 mail.example ESMTP\r\n", b"\0\xff" * 50, b"HTTP/1.1 what\r\n\r\n", b" "):
            reason = await self.refusal(self.begin_raw(says))
            self.assertTrue(reason)
            self.assertNotIn("\n", reason)

    async def test_closed_without_an_answer(self) -> None:
        asking = self.begin_raw(b"")
        await self.raw.spoken_to
        self.raw.connections[0].transport.loseConnection()
        self.assertTrue(await self.refusal(asking))

    async def test_headers_without_end(self) -> None:
        flood = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: x\r\n" % n for n in range(20_000))
        self.assertTrue(await self.refusal(self.begin_raw(flood, closes=False)))
        await self.raw.connections[0].lost


class DeadlineTests(ClientTestCase):
    async def assert_too_late(self, asking: Deferred[OutboundReply], client: Client) -> None:
        client.clock.advance(14.9)
        self.assertNoResult(asking)
        client.clock.advance(0.1)
        reason = str(self.failureResultOf(asking, OutboundError).value)
        self.assertEqual(reason, "no whole answer within 15 seconds")

    async def test_of_the_name(self) -> None:
        hangs: Deferred[list[str]] = Deferred()
        client = self.make_client(lambda host: hangs)
        await self.assert_too_late(self.begin(client, "http://slow.example/"), client)

    async def test_of_connecting(self) -> None:
        black_hole(self, "127.0.0.2", self.port)
        for scheme in ("http", "https"):
            client = self.make_client(Names({"slow.example": ["127.0.0.2"]}))
            asking = self.begin(client, f"{scheme}://slow.example:{self.port}/")
            await self.assert_too_late(asking, client)

    async def test_of_tls(self) -> None:
        raw = RawFactory()
        client = self.make_client()
        asking = self.begin(client, f"https://127.0.0.1:{listen(self, raw)}/")
        await raw.spoken_to
        await self.assert_too_late(asking, client)
        await raw.connections[0].lost

    async def begin_at(self, answer: Answer, client: Client) -> Deferred[OutboundReply]:
        """Begin a request to a page that answers so; it has arrived there."""
        self.pages.answers["/"] = answer
        self.pages.asked = Deferred()
        asking = self.begin(client, self.base)
        await self.pages.asked
        return asking

    async def test_of_headers_and_of_the_body(self) -> None:
        for answer in (silence, half):
            client = self.make_client()
            await self.assert_too_late(await self.begin_at(answer, client), client)

    async def test_of_all_redirects_together(self) -> None:
        client = self.make_client()

        def slow(request: Request) -> bytes:
            client.clock.advance(10)
            request.redirect(b"/last")
            return b""

        self.pages.answers |= {"/": slow, "/last": silence}
        asking = self.begin(client, self.base, redirects=5)
        await self.pages.asked
        client.clock.advance(4.9)
        self.assertNoResult(asking)
        client.clock.advance(0.1)
        self.failureResultOf(asking, OutboundError)

    async def test_answer_in_time_leaves_nothing_behind(self) -> None:
        client = self.make_client()
        await self.ask("/", client)
        client.clock.advance(15)
        self.assertEqual(client.clock.getDelayedCalls(), [])

    async def test_cancelling_is_no_failure_of_the_other_side(self) -> None:
        for answer in (silence, half):
            asking = await self.begin_at(answer, self.make_client())
            asking.cancel()
            self.failureResultOf(asking, CancelledError)


class LeanFailureTests(FailureTests):
    make_client = staticmethod(make_callback_client)


class LeanDeadlineTests(DeadlineTests):
    make_client = staticmethod(make_callback_client)
