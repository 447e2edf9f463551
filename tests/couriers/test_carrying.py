"""Tests what a courier does with answers that cannot be sent to the broker."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from msgspec import msgpack
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.couriers.carrying import Carrier
from rsscloud_broker.couriers.messages import Answered, Failed, Unread


class RefusalTests(SynchronousTestCase):
    def test_each_request_gets_an_answer(self) -> None:
        """A reason that is not Unicode is shown in ASCII; the broker would wait for ever."""
        carrier = Carrier(Mock(), Mock(), Mock(), str)
        carrier.link = Mock()
        bad: list[Any] = [
            Failed(1, "AddressRefused", "\ud800", port_only=True),
            Unread(1, "\ud800", ended=True, refused=True, lasting=False),
            Answered(1, 200, {}, b"", "\ud800", []),
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
