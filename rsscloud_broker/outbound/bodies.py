"""What is made of the body of an answer while it arrives, and how much of it is kept.

Whoever answers may send without end, or a few kilobytes that become gigabytes when
they are decompressed.  So a body is counted and decompressed piece by piece, and
nobody asks for more once there is enough.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from rsscloud_broker.model import OutboundError, TooLarge

#: Names and values of headers as they stand in an answer, in order.
Fields: TypeAlias = Sequence[tuple[bytes, bytes]]

_GZIP = zlib.MAX_WBITS + 16  # zlib's way of saying so
_ZLIB = zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS

#: What ``Unpacked`` can undo, as it is said to servers.
ACCEPTED = "gzip, deflate"
_GZIPPED = frozenset({b"gzip", b"x-gzip"})
_PACKED = _GZIPPED | {b"deflate"}

#: What it cannot, and did not ask for.  Other words are mistakes: there are servers that
#: name a charset there.
_STRANGE = frozenset({b"br", b"zstd", b"compress", b"x-compress", b"dcb", b"dcz"})


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


class CutOff:
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


class Unpacked:
    """A body as it was before it was compressed; one that is too long or breaks off is an
    error.

    :param limit: bytes that it may have, compressed as well as not.
    """

    def __init__(self, fields: Fields, limit: int) -> None:
        self._coding = _coding(fields)
        self._unpacking: zlib._Decompress | None = None
        self._kept = bytearray()
        self._limit = limit
        self._received = 0

    @property
    def size(self) -> int:
        return len(self._kept)

    def add(self, data: bytes) -> bool:
        if self._coding in _STRANGE:  # an answer without a body may say so, too
            raise OutboundError(f"the answer is compressed by {self._coding.decode()}, unasked")
        self._received += len(data)
        if self._coding in _PACKED:
            data = self._unpack(data)
        self._kept += data
        if max(self._received, len(self._kept)) > self._limit:
            raise TooLarge(f"the answer is larger than {self._limit} bytes")
        return True

    def end(self, whole: bool) -> bytes:
        if not whole or (self._unpacking is not None and not self._unpacking.eof):
            raise OutboundError("the answer breaks off")
        return bytes(self._kept)

    def _unpack(self, data: bytes) -> bytes:
        if self._unpacking is None:
            kind = _GZIP if self._coding in _GZIPPED else _deflate(data[0])
            self._unpacking = zlib.decompressobj(kind)
        elif self._unpacking.eof:
            return b""  # what follows is no part of it
        try:
            # No more than is needed to see that it is too much.
            return self._unpacking.decompress(data, self._limit - len(self._kept) + 1)
        except zlib.error as error:
            raise OutboundError(f"the answer cannot be decompressed: {error}") from error


def packed_by(fields: Fields) -> bytes:
    """The coding that ``Unpacked`` undoes for an answer; empty if there is none.

    :raises OutboundError: there are several, one around the other.
    """
    coding = _coding(fields)
    return coding if coding in _PACKED else b""


def _coding(fields: Fields) -> bytes:
    said = b",".join(value for name, value in fields if name.lower() == b"content-encoding")
    if b"," in said:
        raise OutboundError("the answer is compressed more than once")
    return said.strip().lower()


def in_bytes(body: bytes) -> str:
    """How much there is of a body, for people."""
    return "1 byte" if len(body) == 1 else f"{len(body):,} bytes"


def _deflate(first: int) -> int:
    """Which of the two formats that go by the name of deflate begins with a byte.

    It means the one of zlib (RFC 9110, section 8.4.1.2), but there are servers that
    leave out what zlib puts around the compressed bytes.  A stream of zlib says
    "method 8" in its first four bits; no compressor begins a bare one like that.
    """
    return _ZLIB if first & 0x0F == zlib.DEFLATED else _RAW
