"""Undoes the content codings (gzip, deflate) of answers, for ``GuardedAgent``.

A few encoded kilobytes may become megabytes, and to decode those takes as long as some hundred
ordinary answers.  So a small body is decoded at once, and a larger one in a thread while the
reactor goes on.  Decoding stops as soon as the result is too large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, cast

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.python.failure import Failure

from rsscloud_broker.errors import OutboundError, TooLarge
from rsscloud_broker.outbound.bodies import Fields, coding_of, too_large
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.http1 import HTTPAnswer
from rsscloud_broker.wire.codings import CONTENT_CODINGS, DecodingFailed, TooLong, decode_content

#: An encoded body of up to this many bytes is decoded in the reactor's thread, if it becomes at
#: most this many bytes: about a millisecond's work.
ENCODED_AT_ONCE: Final = 16 * 1024
DECODED_AT_ONCE: Final = 128 * 1024

#: How many larger bodies are decoded at the same time.
AT_A_TIME: Final = 2

#: Calls a function in a thread.
InThread: TypeAlias = Callable[..., Deferred[bytes]]


@define(eq=False)
class BodyDecoder:
    """Undoes the content codings of answers.

    :ivar limit: how many bytes a decoded body may have.
    :param budget: counts the bodies that wait, and the decoded ones.
    :param in_thread: calls a function in a thread and returns its result.
    """

    limit: int
    _budget: AnswerBudget
    _in_thread: InThread
    _turns: DeferredSemaphore = field(factory=lambda: DeferredSemaphore(AT_A_TIME), init=False)

    async def decode(self, answer: HTTPAnswer) -> bytes:
        """The body of an answer, without its content coding.

        :raises TooLarge: the decoded body has more than ``limit`` bytes.
        :raises OutboundError: the body is incomplete, or cannot be decoded.
        """
        coding = content_coding(answer.fields)
        encoded = answer.body
        if not coding or not encoded:
            return encoded
        at_once = min(DECODED_AT_ONCE, self.limit)
        if len(encoded) <= ENCODED_AT_ONCE:
            try:
                return decoded(coding, encoded, at_once)
            except TooLarge:
                if at_once == self.limit:
                    raise
        return await self._decode_in_turn(coding, encoded, self.limit)

    def _decode_in_turn(self, coding: bytes, encoded: bytes, limit: int) -> Deferred[bytes]:
        """Decode a body in a thread, when it is its turn and there is memory for it."""
        has_begun = False

        async def work() -> bytes:
            nonlocal has_begun
            with self._budget.holding(len(encoded)):
                async with self._turns, self._budget.reserve(limit):
                    has_begun = True
                    return await self._in_thread(decoded, coding, encoded, limit)

        def give_up(asked: Deferred[bytes]) -> None:
            # A running thread cannot be cancelled: it keeps its turn and its budget.
            if not has_begun:
                working.cancel()

        def pass_on(result: bytes | Failure) -> None:
            if not asked.called:
                asked.callback(cast(bytes, result))  # a Failure starts the errback chain

        asked: Deferred[bytes] = Deferred(give_up)
        working = Deferred.fromCoroutine(work())
        working.addBoth(pass_on)
        return asked


def content_coding(fields: Fields) -> bytes:
    """The content coding of an answer that the broker decodes; empty if there is none."""
    coding = coding_of(fields)
    return coding if coding in CONTENT_CODINGS else b""


def decoded(coding: bytes, encoded: bytes, limit: int) -> bytes:
    """Decode a body of at least one byte; TooLarge beyond the limit, OutboundError if it is
    faulty.
    """
    try:
        return decode_content(coding, encoded, limit)
    except TooLong as error:
        raise too_large(limit) from error
    except DecodingFailed as error:
        raise OutboundError(f"the answer {error}") from error
