"""Decompresses what servers send.

A few kilobytes may become megabytes, and to make them takes as long as some hundred
ordinary answers.  So a body is unpacked when it is there: a small one at once, a larger one in
a thread, while the reactor goes on.  Only so much is made of it as shows that it is too large.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred, DeferredSemaphore

from rsscloud_broker.model import OutboundError, TooLarge
from rsscloud_broker.outbound.bodies import Fields, coding_of, too_large
from rsscloud_broker.outbound.budget import AnswerBudget
from rsscloud_broker.outbound.http1 import Answer

#: What can be undone, as it is said to servers.
ACCEPTED: Final = "gzip, deflate"
_GZIPPED: Final = frozenset({b"gzip", b"x-gzip"})
_PACKED: Final = _GZIPPED | {b"deflate"}

_GZIP: Final = zlib.MAX_WBITS + 16  # zlib's way of saying so
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS

#: Bytes that are unpacked at once: a millisecond's work.
AT_ONCE: Final = 128 * 1024

#: Larger ones that are unpacked at a time.
AT_A_TIME: Final = 2

#: Calls a function in a thread.
InThread: TypeAlias = Callable[..., Deferred[bytes]]


class Unpacker:
    """Unpacks the bodies of answers.

    :param limit: bytes that one may have.
    :param budget: counts those that wait, and has room for what they become.
    :param in_thread: calls a function in a thread.
    """

    def __init__(self, limit: int, budget: AnswerBudget, in_thread: InThread) -> None:
        self._limit = limit
        self._budget = budget
        self._in_thread = in_thread
        self._turns = DeferredSemaphore(AT_A_TIME)

    async def unpacked(self, answer: Answer) -> bytes:
        """The body of an answer as it was before it was compressed.

        :raises TooLarge: it has more bytes than it may have.
        :raises OutboundError: it breaks off, or cannot be unpacked.
        """
        coding = packed_by(answer.fields)
        if not coding or not answer.body:
            return answer.body
        at_once = min(AT_ONCE, self._limit)
        try:
            return unpacked(coding, answer.body, at_once)
        except TooLarge:
            if at_once == self._limit:
                raise
        with self._budget.holding(len(answer.body)):
            async with self._turns, self._budget.room(self._limit):
                return await self._in_thread(unpacked, coding, answer.body, self._limit)


def packed_by(fields: Fields) -> bytes:
    """The coding that ``unpacked`` undoes for an answer; empty if there is none."""
    coding = coding_of(fields)
    return coding if coding in _PACKED else b""


def unpacked(coding: bytes, packed: bytes, limit: int) -> bytes:
    """Undo a coding.

    :param packed: at least one byte.  What follows its end is no part of it.
    :param limit: bytes.
    :raises TooLarge: there are more.
    :raises OutboundError: it breaks off, or is not what it is said to be.
    """
    unpacking = zlib.decompressobj(_GZIP if coding in _GZIPPED else _deflate(packed[0]))
    try:
        body = unpacking.decompress(packed, limit + 1)
    except zlib.error as error:
        raise OutboundError(f"the answer cannot be decompressed: {error}") from error
    if len(body) > limit:
        raise too_large(limit)
    if not unpacking.eof:
        raise OutboundError("the answer breaks off")
    return body


def _deflate(first: int) -> int:
    """Which of the two formats that go by the name of deflate begins with a byte.

    It means the one of zlib (RFC 9110, section 8.4.1.2), but there are servers that
    leave out what zlib puts around the compressed bytes.  A stream of zlib says
    "method 8" in its first four bits; no compressor begins a bare one like that.
    """
    return _ZLIB if first & 0x0F == zlib.DEFLATED else _RAW
