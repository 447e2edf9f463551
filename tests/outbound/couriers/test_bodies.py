"""Tests which bodies cross to a courier, and when it may forget them."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.outbound.couriers import bodies as module
from rsscloud_broker.outbound.couriers.bodies import LARGE, SentBodies
from rsscloud_broker.outbound.couriers.messages import Body, Forget


class BodiesTests(SynchronousTestCase):
    """:ivar has: the bodies that the courier has, by their numbers."""

    def setUp(self) -> None:
        self.bodies = SentBodies()
        self.link: Any = Mock()
        self.link.send = self.take
        self.has: dict[int, bytes] = {}

    def take(self, message: Body | Forget, size: int = 0) -> None:
        if isinstance(message, Body):
            self.assertNotIn(message.number, self.has)
            self.has[message.number] = message.data
        else:
            del self.has[message.number]

    def sent(self, body: bytes) -> bytes | int:
        """What a request says of its body, which the courier has by now."""
        sent = self.bodies.send_once(body, self.link)
        self.assertEqual(self.has[sent] if isinstance(sent, int) else sent, body)
        return sent

    def test_each_crosses_once(self) -> None:
        small, one, two = bytes(LARGE - 1), bytes(LARGE), bytes(2 * LARGE)
        self.assertEqual(self.sent(small), small)
        first, second = self.sent(one), self.sent(two)
        self.assertEqual([self.sent(one), self.sent(two)], [first, second])
        self.assertEqual(len(self.has), 2)

    def test_those_of_long_ago_are_forgotten(self) -> None:
        """By their number and by their bytes; those in use stay."""
        used = bytes(LARGE)
        self.patch(module, "KEPT", 3)
        for number in range(10):
            self.sent(bytes([number]) * LARGE)
            self.sent(used)
        self.assertEqual(len(self.has), 3)
        self.patch(module, "KEPT_BYTES", 2 * LARGE)
        self.sent(bytes(LARGE + 1))
        self.assertEqual([len(body) for body in self.has.values()], [LARGE + 1])

    def test_one_that_is_larger_than_all_together_may_be(self) -> None:
        """It is kept until another one comes: otherwise no request could have it."""
        self.patch(module, "KEPT_BYTES", LARGE)
        for number in range(3):
            self.sent(bytes([number]) * 2 * LARGE)
        self.assertEqual(len(self.has), 1)

    def test_next_process_has_none(self) -> None:
        body = bytes(LARGE)
        self.sent(body)
        self.bodies.clear()
        self.has.clear()
        self.sent(body)
