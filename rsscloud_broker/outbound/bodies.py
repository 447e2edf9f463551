"""What is made of the body of an answer while it arrives, and how much of it is kept.

Whoever answers may send without end.  So a body is counted piece by piece, and nobody asks
for more once there is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from rsscloud_broker.errors import OutboundError, TooLarge

#: Names and values of headers as they stand in an answer, in order.
Fields: TypeAlias = Sequence[tuple[bytes, bytes]]

#: Codings that the broker does not ask for and cannot undo.  Other words are mistakes: there
#: are servers that name a charset there.
_STRANGE: Final = frozenset({b"br", b"zstd", b"compress", b"x-compress", b"dcb", b"dcz"})


class Body(Protocol):
    """Takes the body of one answer.

    :ivar size: bytes of it that are in memory.
    """

    @property
    def size(self) -> int: ...

    def add(self, data: bytes) -> bool:
        """Take the next piece; whether more of them are of any use.

        :raises OutboundError: this is no body to be had.
        """

    def end(self, whole: bool) -> bytes:
        """The body, once there is no more of it or no more is of use.

        :param whole: False if the connection broke off where its end was to be that of
            the body (RFC 9112, section 8), so that nobody knows how much is missing.
        :raises OutboundError: it is not whole, and has to be.
        """


#: Makes one for an answer with these headers; raises OutboundError as it does.
BodyMaker: TypeAlias = Callable[[Fields], Body]


class TruncatingBody:
    """A body as it comes; what is longer than allowed is cut off, like what breaks off.

    :param limit: bytes.
    """

    def __init__(self, fields: Fields, limit: int) -> None:
        # Not a list of parts: those may be very small.
        self._kept = bytearray()
        self._left = limit

    @property
    def size(self) -> int:
        return len(self._kept)

    def add(self, data: bytes) -> bool:
        self._kept += data[: self._left]
        self._left -= len(data)
        return self._left >= 0

    def end(self, whole: bool) -> bytes:
        return bytes(self._kept)


class Whole:
    """A body as it comes, perhaps compressed; one that is too long or breaks off is an error.

    :param limit: bytes that it may have.
    """

    def __init__(self, fields: Fields, limit: int) -> None:
        self._coding = coding_of(fields)
        self._kept = bytearray()
        self._limit = limit

    @property
    def size(self) -> int:
        return len(self._kept)

    def add(self, data: bytes) -> bool:
        if self._coding in _STRANGE:  # an answer without a body may say so, too
            raise OutboundError(f"the answer is compressed by {self._coding.decode()}, unasked")
        if len(self._kept) + len(data) > self._limit:
            raise too_large(self._limit)
        self._kept += data
        return True

    def end(self, whole: bool) -> bytes:
        if not whole:
            raise OutboundError("the answer breaks off")
        return bytes(self._kept)


def too_large(limit: int) -> TooLarge:
    """The error for an answer of more bytes than it may have."""
    return TooLarge(f"the answer is larger than {limit} bytes")


def coding_of(fields: Fields) -> bytes:
    """By what an answer is compressed, as its headers say; empty if they say nothing.

    :raises OutboundError: there are several codings, one around the other.
    """
    said = b",".join(value for name, value in fields if name.lower() == b"content-encoding")
    if b"," in said:
        raise OutboundError("the answer is compressed more than once")
    return said.strip().lower()
