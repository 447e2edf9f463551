"""Streams of events: what a browser costs that reads slowly, or not at all."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rsscloud_broker.web.streams import MAX_BACKLOG, PIECE, Places, Stream


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
        stream.begin(b"a test", lambda: None)
        return request, stream

    def test_a_large_event_is_written_as_the_browser_reads(self) -> None:
        """The connection must never hold all of it: each browser would have a copy."""
        request, stream = self.begin(room=PIECE)
        event = bytes(range(256)) * (MAX_BACKLOG // 256)
        stream.send(event)
        self.assertLess(len(request.text), 2 * PIECE + 100)
        turns = 0
        while len(request.text) < len(event):
            turns += 1
            request.read()
        self.assertGreater(turns, 2)
        self.assertEqual(request.text, b": a test\n\n" + event)
        self.assertFalse(request.aborted)

    def test_a_browser_that_reads_gets_large_events_one_after_another(self) -> None:
        request, stream = self.begin(room=PIECE)
        for _ in range(5):
            stream.send(bytes(MAX_BACKLOG))
            sent = Deferred.fromCoroutine(stream.drained())
            while not sent.called:
                request.read()
            self.successResultOf(sent)
        self.assertEqual(len(request.text), 5 * MAX_BACKLOG + len(b": a test\n\n"))
        self.assertFalse(request.aborted)

    def test_no_more_than_this_waits_for_a_browser_that_does_not_read(self) -> None:
        request, stream = self.begin(room=1)
        sent = 0
        while not request.aborted:
            stream.send(bytes(1000))
            sent += 1000
        self.assertTrue(MAX_BACKLOG < sent < MAX_BACKLOG + 3 * PIECE, sent)

    def test_what_waits_is_forgotten_with_the_browser(self) -> None:
        request, stream = self.begin(room=1)
        stream.send(bytes(1000))
        waiting = Deferred.fromCoroutine(stream.drained())
        self.assertNoResult(waiting)
        request.finished.callback(None)
        self.successResultOf(waiting)
        before = len(request.text)
        request.read()
        stream.send(b"more")
        self.assertEqual(len(request.text), before)


class PlacesTests(SynchronousTestCase):
    def test_nothing_is_kept_of_who_has_left(self) -> None:
        """There may be very many addresses in a year."""
        places = Places(lambda: 4, lambda: 1)
        for key in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
            self.assertTrue(places.has_room(key))
            places.take(key)
            self.assertFalse(places.has_room(key))
            places.leave(key)
        self.assertEqual(len(places._taken), 0)
