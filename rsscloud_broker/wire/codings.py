"""Decodes the content codings gzip and deflate (RFC 9110, section 8.4.1), up to a limit of bytes.

Front doors decode request bodies with it, and ``outbound`` and ``client`` the bodies of answers.
It also says whether a client accepts gzip.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Final

#: The codings that can be decoded, as the value of an Accept-Encoding header.
ACCEPTED: Final = "gzip, deflate"

_GZIPPED: Final = frozenset({b"gzip", b"x-gzip"})
#: The names of the codings that can be decoded, in lower case.
CONTENT_CODINGS: Final = _GZIPPED | {b"deflate"}

_GZIP: Final = zlib.MAX_WBITS + 16  # tells zlib to expect gzip
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS

#: How each member of a gzip body begins.
_MEMBER: Final = b"\x1f\x8b"
#: Each member costs some microseconds, even if it is empty: so many cost about ten milliseconds.
_MAX_MEMBERS: Final = 1000

#: How many encoded bytes are given to zlib first.  Most bodies have fewer; and to copy so many for
#: each member takes some microseconds.
_FIRST_PIECE: Final = 16 * 1024


class TooLong(Exception):
    """The decoded bytes are more than the limit."""


class DecodingFailed(Exception):
    """The bytes cannot be decoded by the coding that they are labelled with.

    The text is a predicate, such as ``breaks off``: the caller puts a subject before it.
    """


def decode_content(coding: bytes, encoded: bytes, limit: int) -> bytes:
    """Decode bytes by a content coding; with gzip, all members (RFC 1952, section 2.2).

    :param coding: one of ``CONTENT_CODINGS``.
    :param encoded: the encoded bytes, at least one.  Bytes after the end of the encoded data are
        ignored, unless they begin like a further member.
    :param limit: the largest number of decoded bytes; memory is used for hardly more.
    :raises TooLong: there are more than ``limit`` decoded bytes.
    :raises DecodingFailed: the bytes are cut off, have another coding, or too many members.
    """
    if coding not in _GZIPPED:
        return _decode_stream(encoded, 0, _deflate_wbits(encoded[0]), limit)[0]
    body, end = _decode_stream(encoded, 0, _GZIP, limit)
    members, room = [body], limit - len(body)
    while encoded.startswith(_MEMBER, end):
        if len(members) == _MAX_MEMBERS:
            raise DecodingFailed(f"has more than {_MAX_MEMBERS} members of gzip")
        body, end = _decode_stream(encoded, end, _GZIP, room)
        members.append(body)
        room -= len(body)
    return b"".join(members)


def _decode_stream(encoded: bytes, begin: int, wbits: int, limit: int) -> tuple[bytes, int]:
    """Decode the stream or the member that begins at an index.

    It is given to zlib in pieces, which grow, since zlib copies what is left of a piece behind the
    end: the rest of the body, for each of many small members, would take long.

    :returns: the decoded bytes, and the index of the end.
    """
    decoder = zlib.decompressobj(wbits)
    parts, room = list[bytes](), limit
    at, size = begin, _FIRST_PIECE
    while not decoder.eof:
        if at >= len(encoded):
            raise DecodingFailed("breaks off")
        try:
            part = decoder.decompress(encoded[at : at + size], room + 1)
        except zlib.error as error:
            raise DecodingFailed(f"cannot be decompressed: {error}") from error
        room -= len(part)
        if room < 0:
            raise TooLong
        parts.append(part)
        at, size = at + size, size * 2
    return b"".join(parts), min(at, len(encoded)) - len(decoder.unused_data)


def _deflate_wbits(first: int) -> int:
    """The ``wbits`` for data labelled as deflate, by its first byte.

    The label means the zlib format (RFC 9110, section 8.4.1.2), but some programs send a raw
    deflate stream without zlib's header and checksum.  The low four bits of a zlib stream's first
    byte are 8, the compression method; no compressor begins a raw stream so.
    """
    return _ZLIB if first & 0x0F == zlib.DEFLATED else _RAW


@lru_cache(maxsize=64)  # most clients send one of a few values
def allows_gzip(accepted: bytes) -> bool:
    """Whether the values of Accept-Encoding allow gzip (RFC 9110, section 12.5.3).

    :param accepted: the values of all such headers of a request, joined by commas.
    """
    weights: dict[bytes, bool] = {}
    for value in accepted.lower().split(b","):
        coding, *parameters = (part.strip() for part in value.split(b";"))
        weights[coding] = all(_allows_coding(parameter) for parameter in parameters)
    return weights.get(b"gzip", weights.get(b"x-gzip", weights.get(b"*", False)))


def _allows_coding(parameter: bytes) -> bool:
    """Whether a parameter of a coding lets it be used: not ``q=0``, nor a q that is no number."""
    name, _, value = parameter.partition(b"=")
    if name.strip() != b"q":
        return True
    try:
        return float(value) > 0
    except ValueError:
        return False
