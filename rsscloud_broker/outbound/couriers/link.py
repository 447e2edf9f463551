"""Sends and takes batches of messages over a connected socket, a frame for each batch.

All messages of one turn of the reactor go into one frame: to encode, send and wake up once for
many messages costs a fraction of once for each.  A frame is four bytes with its length, then
MessagePack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, cast

from msgspec import DecodeError, Meta, msgpack
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IConsumer, IDelayedCall, IPushProducer, ITransport
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

S = TypeVar("S")
T = TypeVar("T")

#: The longest frame in bytes that a courier takes from its broker.
LONGEST: Final = 80 * 1024 * 1024

#: How many messages a frame may have.  A few bytes can be one, and each takes much more memory.
MOST_MESSAGES: Final = 4096

#: How many bytes before a frame say how long it is.
_PREFIX: Final = 4

#: A frame is sent when this many bytes of bodies have come together in one turn, and then another.
USUAL_FRAME: Final = 1024 * 1024

#: A frame has at most this many bytes beside its last body: those of other bodies, and all else.
BESIDES_LAST_BODY: Final = 2 * USUAL_FRAME


@implementer(IPushProducer)
class Link(Protocol, Generic[S, T]):
    """One end of the connection between the broker and a courier.

    :param takes: the type of the messages that this end takes.
    :param take: is called with each batch of messages.
    :param lost: is called when the connection has ended, with the reason, in words.
    :param refuse: is called with a message that cannot be encoded, such as one with a text that is
        not Unicode, and the reason.
    :param longest: returns the most bytes that a frame from the other end may have.  Shorter ones
        than ``BESIDES_LAST_BODY`` are allowed in any case.
    :ivar is_full: whether the other end reads more slowly than this one sends.
    """

    def __init__(
        self,
        reactor: Any,
        takes: Any,
        take: Callable[[Sequence[T]], object],
        lost: Callable[[str], object],
        refuse: Callable[[S, str], object],
        longest: Callable[[], int] = lambda: LONGEST,
    ) -> None:
        self._reactor = reactor
        self._encode = msgpack.Encoder().encode
        self._decode = msgpack.Decoder(
            Annotated[list[takes], Meta(max_length=MOST_MESSAGES)]
        ).decode
        self._take = take
        self._lost = lost
        self._refuse = refuse
        self._longest = longest
        self._size = 0  # bytes of bodies in the batch
        self._abort_reason = ""  # empty unless this end has aborted
        self._batch: list[S] = []
        self._flushing: IDelayedCall | None = None
        self._waiting: list[Deferred[None]] = []
        self._received = bytearray()
        self.is_full = False

    # --- sending

    def send(self, message: S, size: int = 0) -> None:
        """Send a message with the others of this turn of the reactor.

        :param size: how many bytes the body in it has.
        """
        self._batch.append(message)
        self._size += size
        if self._size > USUAL_FRAME:
            self.flush()
        elif self._flushing is None:
            self._flushing = self._reactor.callLater(0, self.flush)

    def flush(self) -> None:
        """Send all messages now."""
        if self._flushing is not None and self._flushing.active():
            self._flushing.cancel()
        self._flushing = None
        if not self.connected:
            return  # they are sent when the connection is made
        batch, self._batch = self._batch, []
        size, self._size = self._size, 0
        for start in range(0, len(batch), MOST_MESSAGES):
            self._send_frames(batch[start : start + MOST_MESSAGES], size)

    def _send_frames(self, batch: Sequence[S], size: int) -> None:
        """Send messages in one frame, or in several ones if it were too long.

        :param size: how many bytes their bodies have at most.
        """
        try:
            frame = self._encode(batch)
        except (UnicodeError, OverflowError, TypeError) as error:
            if len(batch) == 1:
                self._refuse(batch[0], f"it cannot be sent: {error}")
            else:
                for message in batch:
                    self._send_frames([message], size)
        else:
            if len(frame) - size > USUAL_FRAME and len(batch) > 1:
                half = len(batch) // 2
                self._send_frames(batch[:half], size)
                self._send_frames(batch[half:], size)
                return
            length = len(frame).to_bytes(_PREFIX, "big")
            cast(ITransport, self.transport).writeSequence([length, frame])

    def close(self) -> None:
        """End the connection when the messages until now are sent."""
        self.flush()
        cast(ITransport, self.transport).loseConnection()

    async def until_there_is_room(self) -> None:
        """Wait until the other end has read what was sent."""
        while self.is_full and self.connected:
            room: Deferred[None] = Deferred()
            self._waiting.append(room)
            await room

    def connectionMade(self) -> None:
        """Send the messages that wait."""
        cast(IConsumer, self.transport).registerProducer(self, True)
        self.flush()

    def pauseProducing(self) -> None:
        """There is nothing to pause: all has been written."""
        self.is_full = True

    def resumeProducing(self) -> None:
        self.is_full = False
        self._wake_waiting()

    def stopProducing(self) -> None:
        """Do nothing: the transport has closed, and ``connectionLost`` follows."""

    def _wake_waiting(self) -> None:
        """Wake those who wait for room."""
        waiting, self._waiting = self._waiting, []
        for room in waiting:
            room.callback(None)

    # --- taking

    def dataReceived(self, data: bytes) -> None:
        """Pass the messages of each whole frame on; abort if a frame is too long or unreadable."""
        # A large frame comes in hundreds of pieces.  A bytearray grows and shrinks without a copy
        # of all of it for each piece.
        received = self._received
        received += data
        while not self._abort_reason and len(received) >= _PREFIX:
            length = int.from_bytes(received[:_PREFIX], "big")
            if length > BESIDES_LAST_BODY and length > (most := self._longest()):
                self.abort(f"it sent a frame of {length:,} bytes; {most:,} are the most")
            elif len(received) < _PREFIX + length:
                return
            else:
                try:
                    batch = self._decoded(length)
                except DecodeError as error:
                    self.abort(f"it sent a frame that cannot be read: {error}")
                    return
                del received[: _PREFIX + length]
                self._take(batch)

    def _decoded(self, length: int) -> Sequence[T]:
        """The messages of the frame that has come first, of this many bytes, which is not copied.

        :raises DecodeError: they cannot be read.
        """
        with memoryview(self._received) as received, received[_PREFIX : _PREFIX + length] as frame:
            batch: Sequence[T] = self._decode(frame)
            return batch

    def abort(self, why: str) -> None:
        """End the connection at once.

        :param why: the reason, in words, for ``lost``.
        """
        self._abort_reason = self._abort_reason or why
        if self.connected:
            cast(Any, self.transport).abortConnection()

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Forget what is not sent, call ``lost``, and wake those who wait for room."""
        self.connected = 0
        if self._flushing is not None and self._flushing.active():
            self._flushing.cancel()
        self._flushing = None
        self._batch = []
        self._received.clear()
        self._lost(self._abort_reason)
        self._wake_waiting()  # who waits for room finds out that this is no link any more
