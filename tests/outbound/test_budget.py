"""Tests the limits of the bytes of answers that are in memory at the same time."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, execute
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import OutboundError
from rsscloud_broker.model import Content
from rsscloud_broker.outbound.bodies import TruncatingBody, WholeBody
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.http1 import Http1, HTTPAnswer, message
from rsscloud_broker.outbound.urls import target_of
from tests.outbound.servers import connected
from tests.policy.test_memory_budget import Arriving

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
FULL = "no memory left for answers"


class KeptTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.budget = AnswerBudget(limit=1000, small=100)

    def test_largest_contents_have_room(self) -> None:
        for body_limit in (1000, 64 * 2**20):
            budget = AnswerBudget.of_topics(body_limit, execute)
            answers = [Arriving() for _ in range(2)]
            for answer in answers:
                budget.grow(answer, body_limit)
            self.assertEqual([answer.given_up for answer in answers], [False, False])

    def test_contents_count_as_long_as_anybody_has_them(self) -> None:
        contents = [Content(b"x" * size) for size in (100, 101, 800)]
        for content in contents:
            self.budget.keep(content)
        self.assertEqual(self.budget.contents.held, 901)
        fitting = [self.budget.has_capacity(size) for size in (100, 1099, 1100)]
        self.assertEqual(fitting, [True, True, False])
        del contents[:], content
        self.assertEqual(self.budget.contents.held, 0)

    def test_contents_take_no_room_from_answers_that_arrive(self) -> None:
        content, answer = Content(b"x" * 2000), Arriving()
        self.budget.keep(content)
        self.budget.grow(answer, 1000)
        self.assertFalse(answer.given_up)

    def test_contents_are_counted_in_the_reactors_thread(self) -> None:
        """The last reference to a content may be dropped in another thread."""
        calls: list[Any] = []
        budget = AnswerBudget(limit=1000, small=100, call=lambda *call: calls.append(call))
        budget.keep(Content(b"x" * 500))
        self.assertEqual(budget.contents.held, 500)
        ((function, *arguments),) = calls
        function(*arguments)
        self.assertEqual(budget.contents.held, 0)

    async def make(self, size: int, until: Deferred[None]) -> None:
        """Make a content; the work ends when a Deferred fires."""
        async with self.budget.reserve(size):
            await until

    def test_what_is_to_be_made_waits_for_room(self) -> None:
        content = Content(b"x" * 700)
        self.budget.keep(content)
        ends: list[Deferred[None]] = [Deferred() for _ in range(4)]
        made = [
            Deferred.fromCoroutine(self.make(size, end))
            for size, end in zip((300, 600, 100, 300), ends, strict=True)
        ]
        self.assertEqual(self.budget.contents.held, 1000)
        ends[0].callback(None)
        # The second gets its turn before the third.
        self.assertEqual(self.budget.contents.held, 700)
        made[1].cancel()
        self.failureResultOf(made[1], CancelledError)
        self.assertEqual(self.budget.contents.held, 700)
        del content
        self.assertEqual(self.budget.contents.held, 400)
        for end in ends[2:]:
            end.callback(None)
        self.assertEqual(self.budget.contents.held, 0)


class ConnectionTests(SynchronousTestCase):
    """Connections that share a budget."""

    def setUp(self) -> None:
        self.budget = AnswerBudget(limit=5000, small=1000)

    def ask(self) -> tuple[Http1, StringTransport, Deferred[HTTPAnswer]]:
        request = message("GET", target_of("http://127.0.0.1/"), {}, b"")
        return connected(request, self.budget, 5000)

    def test_slow_one_makes_room_for_a_fast_one(self) -> None:
        slow, transport, given_up = self.ask()
        slow.dataReceived(HEAD + b"x" * 1500)
        fast, _, answered = self.ask()
        fast.dataReceived(HEAD + b"x" * 2500)
        slow.dataReceived(b"x" * 100)
        fast.dataReceived(b"x" * 2000)
        error = self.failureResultOf(given_up, OutboundError)
        self.assertIn(FULL, str(error.value))
        self.assertTrue(transport.disconnected)
        fast.dataReceived(b"x" * 500)
        self.assertEqual(len(self.successResultOf(answered).body), 5000)
        self.assertEqual(self.budget.held, 0)

    def test_however_it_ends(self) -> None:
        for end in ("whole", "lost", "cancelled"):
            connection, _, answered = self.ask()
            connection.dataReceived(HEAD + b"x" * 4000)
            self.assertGreater(self.budget.held, 4000)
            if end == "whole":
                connection.dataReceived(b"x" * 1000)
            elif end == "lost":
                connection.connectionLost()
            else:
                answered.cancel()
            self.assertEqual(self.budget.held, 0, end)
            answered.addErrback(lambda failure: None)

    def test_headers_count(self) -> None:
        connection, _, answered = self.ask()
        connection.dataReceived(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 5000)
        self.assertIn(FULL, str(self.failureResultOf(answered, OutboundError).value))

    def test_many_small_pieces_take_no_more_room(self) -> None:
        for body in (TruncatingBody([], 5000), WholeBody([], 5000)):
            for _ in range(1000):
                body.add(b"ab")
            self.assertEqual(body.size, 2000)
