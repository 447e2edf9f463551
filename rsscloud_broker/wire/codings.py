"""Decodes the content codings gzip and deflate (RFC 9110, section 8.4.1), up to a limit of bytes.

Front doors decode request bodies with it, and ``outbound`` the bodies of answers.
"""

from __future__ import annotations

import zlib
from typing import Final

#: The codings that can be decoded, as the value of an Accept-Encoding header.
ACCEPTED: Final = "gzip, deflate"

_GZIPPED: Final = frozenset({b"gzip", b"x-gzip"})
#: The names of the codings that can be decoded, in lower case.
CONTENT_CODINGS: Final = _GZIPPED | {b"deflate"}

_GZIP: Final = zlib.MAX_WBITS + 16  # tells zlib to expect gzip
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


class TooLong(Exception):
    """The decoded bytes are more than the limit."""


class DecodingFailed(Exception):
    """The bytes cannot be decoded by the coding that they are labelled with.

    The text is a predicate, such as ``breaks off``: the caller puts a subject before it.
    """


def decode_content(coding: bytes, encoded: bytes, limit: int) -> bytes:
    """Decode bytes by a content coding.

    :param coding: one of ``CONTENT_CODINGS``.
    :param encoded: the encoded bytes, at least one.  Bytes after the end of the encoded data are
        ignored.
    :param limit: the largest number of decoded bytes; memory is used for hardly more.
    :raises TooLong: there are more than ``limit`` decoded bytes.
    :raises DecodingFailed: the bytes are cut off, or have another coding.
    """
    decoder = zlib.decompressobj(_GZIP if coding in _GZIPPED else _deflate(encoded[0]))
    try:
        body = decoder.decompress(encoded, limit + 1)
    except zlib.error as error:
        raise DecodingFailed(f"cannot be decompressed: {error}") from error
    if len(body) > limit:
        raise TooLong
    if not decoder.eof:
        raise DecodingFailed("breaks off")
    return body


def _deflate(first: int) -> int:
    """The ``wbits`` for data labelled as deflate, by its first byte.

    The label means the zlib format (RFC 9110, section 8.4.1.2), but some programs send a raw
    deflate stream without zlib's header and checksum.  The low four bits of a zlib stream's first
    byte are 8, the compression method; no compressor begins a raw stream so.
    """
    return _ZLIB if first & 0x0F == zlib.DEFLATED else _RAW
