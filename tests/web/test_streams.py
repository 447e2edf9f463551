"""Streams of events: what a browser costs that reads slowly, or not at all."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.web.streams import PIECE, Places, Stream


class SlowRequest:
    """A request whose connection is full after some bytes, until the browser reads.

    :ivar room: how many bytes the connection takes before it is full.
    :ivar written: what was written, in pieces.
    :ivar aborted: whether the connection was ended.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.written: list[bytes] = []
        self.aborted = False
        self.channel = self
        self.finished: Deferred[None] = Deferred()
        self._left = room
        self._producer: Any = None

    def notifyFinish(self) -> Deferred[None]:
        return self.finished

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self._producer = producer

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self._left -= len(data)
        if self._left <= 0:
            self._producer.pauseProducing()

    def forceAbortClient(self) -> None:
        self.aborted = True

    @property
    def text(self) -> bytes:
        return b"".join(self.written)

    def read(self) -> None:
        """Take all that is in the buffers, as a browser does that reads again."""
        self._left = self.room
        self._producer.resumeProducing()


class StreamTests(SynchronousTestCase):
    def begin(self, room: int) -> tuple[SlowRequest, Stream]:
        request = SlowRequest(room)
        stream = Stream(cast(Any, request))
        stream.begin()
        return request, stream

    def test_a_large_event_is_written_as_the_browser_reads(self) -> None:
        """The connection must never hold all of it: each browser would have a copy."""
        request, stream = self.begin(room=PIECE)
        event = bytes(range(256)) * (4 * PIECE // 256)
        sent = Deferred.fromCoroutine(stream.send(event))
        self.assertLess(len(request.text), PIECE + 1)
        turns = 0
        while not sent.called:
            turns += 1
            request.read()
        self.assertGreater(turns, 2)
        self.assertEqual(request.text, event)
        self.successResultOf(sent)

    def test_what_waits_is_forgotten_with_the_browser(self) -> None:
        request, stream = self.begin(room=1)
        waiting = Deferred.fromCoroutine(stream.send(bytes(2 * PIECE)))
        self.assertNoResult(waiting)
        request.finished.callback(None)
        self.successResultOf(waiting)
        before = len(request.text)
        request.read()
        self.successResultOf(stream.send(b"more"))
        self.assertEqual(len(request.text), before)


class PlacesTests(SynchronousTestCase):
    def test_nothing_is_kept_of_who_has_left(self) -> None:
        """There may be very many addresses in a year."""
        places = Places(lambda: 4, lambda: 1)
        for key in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
            self.assertTrue(places.acquire({key: 10}))
            self.assertFalse(places.acquire({key: 10}))
            places.release({key: 10})
        self.assertEqual(len(places._taken), 0)

    def test_each_key_has_a_limit(self) -> None:
        places = Places(lambda: 100, lambda: 4)
        shares = {"192.0.2.1": 1, "an account": 2}
        self.assertEqual([places.acquire(shares) for _ in range(3)], [True, True, False])
        self.assertTrue(places.acquire({"192.0.2.1": 1}))
