"""Tests what the broker does with the answers of a courier, and with those that do not come."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.errors import AddressRefused, CallsUnavailable, Interrupted, MemoryUnavailable
from rsscloud_broker.interfaces import OutboundReply
from rsscloud_broker.outbound.couriers.messages import Answered, Failed, ReadDone, Unread
from rsscloud_broker.outbound.couriers.pending import TO_CALL, TO_READ, Answer, Pending, WrongAnswer


def read_done(number: int, body: bytes | None = None) -> ReadDone:
    return ReadDone(number, bytes(32), 3, body, "", "", "", "", None, "200")


class PendingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.pending = Pending()
        self.ends: list[Any] = []
        self.sent: list[int] = []

    def add(self, answers: tuple[type, ...] = TO_CALL) -> int:
        return self.pending.begin(self.ends.append, answers, self.sent.append)

    def test_answers(self) -> None:
        expected = OutboundReply(200, {}, b"1", "http://a/", ((301, "http://b/"),))
        self.pending.take(Answered(self.add(), expected))
        self.pending.take(Failed(self.add(), "AddressRefused", "no", port_only=True))
        self.pending.take(Failed(self.add(), "Nonsense", "no"))
        self.pending.take(Failed(self.add(), "MemoryUnavailable", "no"))
        unread = Unread(self.add(TO_READ), "gone", ended=True, refused=False, lasting=False)
        self.pending.take(unread)
        reply, refused, unavailable, lacking, last = self.ends
        self.assertEqual(reply, expected)
        self.assertEqual((type(refused), refused.port_only), (AddressRefused, True))
        self.assertIs(type(unavailable), CallsUnavailable)
        self.assertIs(type(lacking), MemoryUnavailable)
        self.assertIs(last, unread)
        self.assertEqual(len(self.pending), 0)

    def test_wrong_answers(self) -> None:
        """They are noticed before anybody takes them for what was asked for."""
        call, read = self.add(), self.add(TO_READ)
        wrong: list[Answer] = [
            read_done(call),
            Unread(call, "", ended=False, refused=False, lasting=False),
            Answered(read, OutboundReply(200, {}, b"", "")),
            read_done(read, b"four"),
        ]
        for answer in wrong:
            with self.assertRaises(WrongAnswer):
                self.pending.take(answer)
        self.assertEqual((self.ends, len(self.pending)), ([], 2))

    def test_what_nobody_waits_for(self) -> None:
        for answer in (read_done(7), Failed(7, "Unavailable", "")):
            self.pending.take(answer)
        self.assertEqual(self.ends, [])

    def test_requests_that_wait_too_long(self) -> None:
        self.pending.beat(2)
        first = self.add()
        self.assertFalse(self.pending.beat(2))
        self.add()
        self.assertFalse(self.pending.beat(2))
        self.assertTrue(self.pending.beat(2))
        self.pending.take(Failed(first, "Unavailable", ""))
        self.assertFalse(self.pending.beat(3))

    def test_process_that_has_ended(self) -> None:
        """Everybody is notified."""
        self.add()
        self.add(TO_READ)
        self.pending.give_up(Interrupted)
        self.assertIsInstance(self.ends[-1], Interrupted)
        self.assertEqual((len(self.ends), len(self.pending)), (2, 0))

    def test_what_the_next_process_gets(self) -> None:
        """It is sent once more and not again, and has its whole time there."""
        first = self.add()
        for _ in range(3):
            self.pending.beat(3)
        self.pending.give_up(Interrupted, keeps=True)
        self.assertEqual(self.ends, [])
        self.pending.send_kept()
        self.assertFalse(self.pending.beat(2))
        second = self.add()
        self.assertEqual(self.sent, [first, first, second])
        self.pending.give_up(Interrupted, keeps=True)
        self.assertEqual((len(self.ends), len(self.pending)), (1, 1))
