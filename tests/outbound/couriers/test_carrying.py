"""Tests how a courier carries requests out, and what it does with answers that cannot be sent."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from msgspec import msgpack
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.interfaces import OutboundReply, OutboundRequest
from rsscloud_broker.outbound.couriers.carrying import Carrier
from rsscloud_broker.outbound.couriers.messages import (
    Answered,
    Body,
    Call,
    Failed,
    Forget,
    Setup,
    Unread,
)


class CarrierTests(SynchronousTestCase):
    def test_each_request_gets_an_answer(self) -> None:
        """A reason that is not Unicode is shown in ASCII; the broker would wait forever."""
        carrier = Carrier(Mock(), Mock(), Mock(), Mock(), str)
        carrier.link = Mock()
        bad: list[Any] = [
            Failed(1, "AddressRefused", "\ud800", port_only=True),
            Unread(1, "\ud800", ended=True, refused=True, lasting=False),
            Answered(1, OutboundReply(200, {}, b"", "\ud800")),
        ]
        for message in bad:
            self.assertRaises(UnicodeError, msgpack.encode, message)
            carrier.refuse(message, "surrogates not allowed")
        sent = [call.args[0] for call in carrier.link.send.call_args_list]
        self.assertEqual(
            sent,
            [
                Failed(1, "AddressRefused", r"'\ud800'", port_only=True),
                Unread(1, r"'\ud800'", ended=True, refused=True, lasting=False),
                Failed(1, "OutboundError", "the answer is faulty: surrogates not allowed"),
            ],
        )
        self.assertEqual(len(msgpack.decode(msgpack.encode(sent))), 3)

    def test_request_that_is_over_leaves_nothing_behind(self) -> None:
        """Neither its number nor a Deferred that waits for itself."""
        answer: Deferred[OutboundReply] = Deferred()
        client = Mock(request=Mock(return_value=answer))
        carrier = Carrier(Mock(return_value=client), Mock(), Mock(), Mock(), str)
        carrier.link = Mock()
        carrier.take([Setup("tests/1.0", [], [], 15.0, 65_536)])
        carrier.take([Call(7, OutboundRequest("GET", "http://reader.example/"), b"")])
        self.assertEqual([*carrier._under_way], [7])
        answer.callback(OutboundReply(200, {}, b"", "http://reader.example/"))
        (sent,) = [call.args[0] for call in carrier.link.send.call_args_list]
        self.assertEqual((sent.number, sent.reply.status), (7, 200))
        self.assertEqual(carrier._under_way, {})
        self.assertEqual(self.flushWarnings(), [])

    def test_body_of_no_further_request_is_forgotten(self) -> None:
        carrier = Carrier(Mock(), Mock(), Mock(), Mock(), str)
        carrier.link = Mock()
        carrier.take([Body(1, b"one"), Body(2, b"two"), Forget(1)])
        self.assertEqual(carrier._bodies, {2: b"two"})
