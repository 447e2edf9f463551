"""Tests that large request bodies are sent piece by piece, as the server reads them."""

from __future__ import annotations

from typing import Any, cast

from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.http1 import PIECE, message
from rsscloud_broker.outbound.urls import target_of
from tests.outbound.authority import authority
from tests.outbound.scripted import OK, CallbackClientTestCase
from tests.outbound.servers import Names, Pages, connected, make_callback_client, serve


class LargeBodyTests(CallbackClientTestCase):
    async def test_large_bodies_over_one_connection(self) -> None:
        bodies = [b"x" * 3_000_000, b"y" * (PIECE + 1), b"z", b"x" * (2 * PIECE)]
        for security in None, authority().server("reader.example"):
            pages = Pages({})
            port = serve(self, pages, security)
            client = make_callback_client(
                Names({"reader.example": ["127.0.0.1"]}), trusted=[authority().trusted]
            )
            url = f"{'https' if security else 'http'}://reader.example:{port}/"
            for body in bodies:
                await self.begin(client, url, method="POST", body=body)
            self.assertEqual([seen.body for seen in pages.seen], bodies)
            client.clock.advance(100)  # the idle connection is closed

    def test_who_does_not_read_a_large_body_is_sent_no_more_of_it(self) -> None:
        """Otherwise many servers that do not read would fill the memory with copies."""
        request = message("POST", target_of("http://127.0.0.1/"), {}, b"x" * 5_000_000)
        connection, transport, answered = connected(request, AnswerBudget(), 1000)
        head = len(transport.value())
        self.assertLess(head, 1000)
        cast(Any, transport.producer).resumeProducing()
        self.assertEqual(len(transport.value()) - head, PIECE)
        connection.dataReceived(OK)
        self.assertEqual(self.successResultOf(answered).body, b"hello")
        self.assertFalse(connection.reusable, "another request would be taken for the rest")
