"""Content codings (RFC 9110, section 8.4.1): undoes gzip and deflate."""

from __future__ import annotations

import zlib
from typing import Final

#: What can be undone, as it is said to others.
ACCEPTED: Final = "gzip, deflate"

_GZIPPED: Final = frozenset({b"gzip", b"x-gzip"})
#: Names of codings, in lower case.
PACKED: Final = _GZIPPED | {b"deflate"}

_GZIP: Final = zlib.MAX_WBITS + 16  # zlib's way of saying so
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


class TooLong(Exception):
    """There are more bytes than there may be."""


class BadlyPacked(Exception):
    """Something is not packed as it is said to be.

    Its text is the end of a sentence that begins with what was to be unpacked.
    """


def unpacked(coding: bytes, packed: bytes, limit: int) -> bytes:
    """Undo a coding.

    :param coding: one of ``PACKED``.
    :param packed: at least one byte.  What follows its end is no part of it.
    :param limit: bytes that there may be; little more than that is made.
    :raises TooLong: there are more.
    :raises BadlyPacked: it breaks off, or is not what it is said to be.
    """
    unpacking = zlib.decompressobj(_GZIP if coding in _GZIPPED else _deflate(packed[0]))
    try:
        body = unpacking.decompress(packed, limit + 1)
    except zlib.error as error:
        raise BadlyPacked(f"cannot be decompressed: {error}") from error
    if len(body) > limit:
        raise TooLong
    if not unpacking.eof:
        raise BadlyPacked("breaks off")
    return body


def _deflate(first: int) -> int:
    """Which of the two formats that go by the name of deflate begins with a byte.

    It means the one of zlib (RFC 9110, section 8.4.1.2), but there are programs that
    leave out what zlib puts around the compressed bytes.  A stream of zlib says
    "method 8" in its first four bits; no compressor begins a bare one like that.
    """
    return _ZLIB if first & 0x0F == zlib.DEFLATED else _RAW
