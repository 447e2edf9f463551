"""Decompresses the bodies of answers, for ``GuardedAgent``.

A few kilobytes may become megabytes, and decompressing those takes as long as some hundred ordinary
answers.  So a small body is decompressed at once, and a larger one in a thread while the reactor
goes on.  Decompression stops as soon as the result is too large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, cast

from attrs import define
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.python.failure import Failure

from rsscloud_broker.errors import OutboundError, TooLarge
from rsscloud_broker.outbound.bodies import Fields, coding_of, too_large
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.http1 import Answer
from rsscloud_broker.wire.codings import PACKED, BadlyPacked, TooLong, unpacked

#: Up to so many bytes are decompressed in the reactor's thread, to up to so many bytes: about a
#: millisecond's work.
PACKED_AT_ONCE: Final = 16 * 1024
AT_ONCE: Final = 128 * 1024

#: How many larger bodies are decompressed at the same time.
AT_A_TIME: Final = 2

#: Calls a function in a thread.
InThread: TypeAlias = Callable[..., Deferred[bytes]]


@define
class _Turn:
    """Whether the decompression of a body has begun, or still waits."""

    has_begun: bool = False


class Unpacker:
    """Decompresses the bodies of answers.

    :ivar limit: how many bytes a decompressed body may have.
    :param budget: counts the bodies that wait, and the decompressed ones.
    :param in_thread: calls a function in a thread and returns its result.
    """

    def __init__(self, limit: int, budget: AnswerBudget, in_thread: InThread) -> None:
        self.limit = limit
        self._budget = budget
        self._in_thread = in_thread
        self._turns = DeferredSemaphore(AT_A_TIME)

    async def unpacked(self, answer: Answer) -> bytes:
        """The body of an answer, decompressed if it is compressed.

        :raises TooLarge: the decompressed body has more than ``limit`` bytes.
        :raises OutboundError: the body is incomplete, or cannot be decompressed.
        """
        coding = content_coding(answer.fields)
        packed = answer.body
        if not coding or not packed:
            return packed
        at_once = min(AT_ONCE, self.limit)
        if len(packed) <= PACKED_AT_ONCE:
            try:
                return _unpacked(coding, packed, at_once)
            except TooLarge:
                if at_once == self.limit:
                    raise
        turn = _Turn()
        working = Deferred.fromCoroutine(self._work(turn, coding, packed))

        def give_up(asked: Deferred[bytes]) -> None:
            # A running thread cannot be cancelled: it keeps its turn and its budget.
            if not turn.has_begun:
                working.cancel()

        def pass_on(result: bytes | Failure) -> None:
            if not asked.called:
                asked.callback(cast(bytes, result))  # a Failure starts the errback chain

        asked: Deferred[bytes] = Deferred(give_up)
        working.addBoth(pass_on)
        return await asked

    async def _work(self, turn: _Turn, coding: bytes, packed: bytes) -> bytes:
        limit = self.limit  # it may change while this waits
        with self._budget.holding(len(packed)):
            async with self._turns, self._budget.room(limit):
                turn.has_begun = True
                return await self._in_thread(_unpacked, coding, packed, limit)


def content_coding(fields: Fields) -> bytes:
    """The content coding of an answer that the broker decodes; empty if there is none."""
    coding = coding_of(fields)
    return coding if coding in PACKED else b""


def _unpacked(coding: bytes, packed: bytes, limit: int) -> bytes:
    try:
        return unpacked(coding, packed, limit)
    except TooLong as error:
        raise too_large(limit) from error
    except BadlyPacked as error:
        raise OutboundError(f"the answer {error}") from error
