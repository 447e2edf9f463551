"""Tests the connection between the broker and a courier."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from time import process_time
from typing import Any

from msgspec import msgpack
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.interfaces import OutboundRequest
from rsscloud_broker.outbound.couriers import link as module
from rsscloud_broker.outbound.couriers.link import Link
from rsscloud_broker.outbound.couriers.messages import (
    MAX_TEXT,
    Alive,
    Body,
    Call,
    Failed,
    Forget,
    FromBroker,
    FromCourier,
    ReadDone,
    Said,
)
from rsscloud_broker.testing import Clock


def framed(*messages: Any) -> bytes:
    """A frame with some messages, as it goes through a link."""
    frame = msgpack.encode(messages)
    return len(frame).to_bytes(4, "big") + frame


class LinkTests(SynchronousTestCase):
    """Two ends of a link, and what is on the way between them."""

    def setUp(
        self, takes: Any = FromBroker, longest: Callable[[], int] = lambda: module.LONGEST
    ) -> None:
        self.clock = Clock()
        self.taken: list[Any] = []
        self.refused: list[tuple[Any, str]] = []
        self.lost: list[str] = []
        self.link: Link[Any, Any] = Link(
            self.clock,
            takes,
            self.taken.append,
            self.lost.append,
            lambda message, why: self.refused.append((message, why)),
            longest,
        )
        self.transport = StringTransport()
        self.link.makeConnection(self.transport)

    def frames(self) -> list[bytes]:
        """What was sent until now, cut into frames without their lengths."""
        sent, frames = self.transport.value(), []
        self.transport.clear()
        while sent:
            length = int.from_bytes(sent[:4], "big")
            frames.append(sent[4 : 4 + length])
            sent = sent[4 + length :]
        return frames

    def test_messages_of_a_turn_share_a_frame(self) -> None:
        request = OutboundRequest("POST", "http://a.example/", {"x": "é"}, redirects=2)
        calls = [Call(n, request, b"\xff") for n in range(50)]
        for call in calls:
            self.link.send(call)
        self.assertEqual(self.frames(), [])
        self.clock.advance(0)
        self.assertEqual(self.frames(), [msgpack.encode(calls)])
        self.link.dataReceived(framed(*calls))
        self.assertEqual(self.taken, [calls])

    def test_before_it_is_connected(self) -> None:
        link: Link[Any, Any] = Link(
            self.clock, FromBroker, self.taken.append, self.lost.append, lambda *_: None
        )
        link.send(Alive(1))
        link.flush()
        link.send(Alive(2))
        self.transport.unregisterProducer()
        link.makeConnection(self.transport)
        self.assertEqual(self.frames(), [msgpack.encode([Alive(1), Alive(2)])])

    def test_large_bodies_are_sent_at_once(self) -> None:
        """So no frame grows beyond the largest body and a little more."""
        size = module.USUAL_FRAME // 2 + 1
        for number in range(4):
            self.link.send(Body(number, bytes(size)), size)
        self.assertEqual(len(self.frames()), 2)

    def test_a_message_that_cannot_be_encoded(self) -> None:
        """The others of its turn are sent all the same, in their order."""
        good, bad = Said("good"), Said("\ud800")
        for message in (good, bad, good):
            self.link.send(message)
        self.clock.advance(0)
        self.assertEqual(self.frames(), [msgpack.encode([good])] * 2)
        ((message, why),) = self.refused
        self.assertIs(message, bad)
        self.assertIn("surrogates not allowed", why)

    def test_garbage(self) -> None:
        of_the_other_direction = framed(Failed(1, "", ""))
        for sent in (b"\0\0\0\1\xc1", framed(["Call", 1]), of_the_other_direction):
            self.setUp()
            self.link.dataReceived(sent)
            self.assertTrue(self.transport.disconnecting)
            self.link.connectionLost()
            self.assertEqual(self.taken, [])
            self.assertIn("cannot be read", self.lost[0])

    def test_values_that_the_store_cannot_hold(self) -> None:
        """A courier that sends them has been broken into."""
        good = ReadDone(1, bytes(32), 3, b"abc", "text/xml", "1", "2", "", 2.0, "200")
        bad: list[dict[str, Any]] = [
            *({"fresh_seconds": value} for value in (inf, nan, -1.0, 1e300)),
            *({name: "\0"} for name in ("content_type", "etag", "last_modified", "result")),
            *({name: "x" * (MAX_TEXT + 1)} for name in ("moved_to", "result", "etag")),
            {"digest": b"1"},
            {"size": -1},
        ]
        for changes in ({}, *bad):
            self.setUp(FromCourier)
            self.link.dataReceived(framed(replace(good, **changes)))
            self.assertEqual(self.taken, [] if changes else [[good]], changes)
            self.assertEqual(self.transport.disconnecting, bool(changes))

    def test_too_many_messages(self) -> None:
        """A frame is refused before they are decoded, and nobody sends so many in one."""
        most = module.MOST_MESSAGES
        for number in range(most + 1):
            self.link.send(Forget(number))
        self.clock.advance(0)
        for frame in self.frames():
            self.link.dataReceived(framed(*msgpack.decode(frame)))
        self.assertEqual([len(batch) for batch in self.taken], [most, 1])
        self.link.dataReceived(framed(*[Forget(1)] * (most + 1)))
        self.assertEqual(len(self.taken), 2)
        self.assertTrue(self.transport.disconnecting)

    def test_too_long_a_frame(self) -> None:
        """It is noticed by its length, before its bytes are there."""
        asked: list[int] = []

        def longest() -> int:
            asked.append(1)
            return 3 * module.USUAL_FRAME

        for length, refused in (
            (module.BESIDES_LAST_BODY, False),
            (3 * module.USUAL_FRAME, False),
            (3 * module.USUAL_FRAME + 1, True),
        ):
            self.setUp(longest=longest)
            self.link.dataReceived(length.to_bytes(4, "big"))
            self.assertEqual(self.transport.disconnecting, refused, length)
        self.link.connectionLost()
        self.assertIn("are the most", self.lost[0])
        self.assertEqual(len(asked), 2)  # and not about a frame of a usual size

    def test_no_frame_has_much_beside_its_last_body(self) -> None:
        """However long the other messages are that come together, and in whatever order."""
        largest = 3 * module.USUAL_FRAME
        small = Said("x" * (module.USUAL_FRAME // 4))
        sent: list[Any] = [small] * 9
        for size in (module.USUAL_FRAME, largest, 1):
            sent += [Body(size, bytes(size)), small, small]
        for message in sent:
            self.link.send(message, len(message.data) if isinstance(message, Body) else 0)
        self.clock.advance(0)
        frames = self.frames()
        self.assertLessEqual(max(map(len, frames)), largest + module.BESIDES_LAST_BODY)
        came = [message for frame in frames for message in msgpack.decode(frame)]
        self.assertEqual(came, msgpack.decode(msgpack.encode(sent)))

    def test_large_frame_in_pieces(self) -> None:
        """What the pieces cost does not grow with what has come before them."""
        body = Body(1, bytes(40 * 1024 * 1024))
        sent = framed(body)
        before = process_time()
        for start in range(0, len(sent), 65_536):
            self.link.dataReceived(sent[start : start + 65_536])
        self.assertEqual(self.taken, [[body]])
        # To copy all that has come at each piece would be 13 GB.
        self.assertLess(process_time() - before, 1.0)

    def test_frames_in_any_pieces(self) -> None:
        """Of several frames, of which some bytes come at a time."""
        sent = b"".join(framed(*[Forget(number)] * number) for number in range(20))
        for size in (1, 3, 7, 50, len(sent)):
            self.taken.clear()
            for start in range(0, len(sent), size):
                self.link.dataReceived(sent[start : start + size])
            self.assertEqual(self.taken, [[Forget(number)] * number for number in range(20)])

    def test_nothing_is_taken_after_garbage(self) -> None:
        for _ in range(2):
            self.link.dataReceived(b"\0\0\0\1\xc1" + framed(Forget(1)))
        self.assertEqual(self.taken, [])

    def test_who_reads_slowly(self) -> None:
        """Anyone who asks first waits until there is room, or until the link has ended."""
        self.assertTrue(self.transport.streaming)
        for free in (self.link.resumeProducing, self.link.connectionLost):
            self.link.pauseProducing()
            self.assertTrue(self.link.is_full)
            waiting = Deferred.fromCoroutine(self.link.until_there_is_room())
            self.assertNoResult(waiting)
            free()
            self.assertIsNone(self.successResultOf(waiting))
