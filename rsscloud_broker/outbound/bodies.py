"""Collects the body of an answer while it arrives, and limits its size.

A server may send without end, so the bytes are counted piece by piece, and the connection
(``http1``) stops reading when there are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rsscloud_broker.errors import OutboundError, TooLarge

#: The names and values of an answer's headers, as they came and in order.
Fields: TypeAlias = Sequence[tuple[bytes, bytes]]

#: Content codings that the broker does not ask for and cannot decode.  Other unknown words are
#: ignored as mistakes: some servers name a charset there.
_STRANGE: Final = frozenset({b"br", b"zstd", b"compress", b"x-compress", b"dcb", b"dcz"})


class AnswerBody:
    """Collects the body of one answer.

    :param fields: the headers of the answer.
    :param limit: how many bytes are kept.
    """

    def __init__(self, fields: Fields, limit: int) -> None:
        # A list of very small pieces would take more memory than their bytes.
        self._kept = bytearray()
        self._limit = limit

    @property
    def size(self) -> int:
        """How many of its bytes are in memory."""
        return len(self._kept)

    def add(self, data: bytes) -> bool:
        """Add the next piece.

        :returns: whether further pieces are of any use.
        :raises OutboundError: the broker does not accept this body.
        """
        raise NotImplementedError

    def end(self, whole: bool) -> bytes:
        """The body, after its last piece or when further pieces are of no use.

        :param whole: False if the body may be incomplete: the connection broke off, in a body
            that ends with its connection (RFC 9112, section 8).
        :raises OutboundError: the body is incomplete, and this class accepts no such body.
        """
        return bytes(self._kept)


#: Makes the ``AnswerBody`` for an answer with the given headers; raises OutboundError if they show
#: already that the broker cannot read the body.
BodyMaker: TypeAlias = Callable[[Fields], AnswerBody]


class TruncatingBody(AnswerBody):
    """Collects a body as it comes; keeps its beginning if it is too long or incomplete."""

    def add(self, data: bytes) -> bool:
        """Keep what fits; False once a byte did not fit."""
        left = self._limit - len(self._kept)
        self._kept += data[:left]
        return len(data) <= left


class WholeBody(AnswerBody):
    """Collects a body as it comes, perhaps compressed; a long or incomplete body is an error."""

    def __init__(self, fields: Fields, limit: int) -> None:
        super().__init__(fields, limit)
        self._coding = coding_of(fields)

    def add(self, data: bytes) -> bool:
        """Keep a piece; an error beyond the limit, or if the broker cannot decode the body."""
        if self._coding in _STRANGE:  # checked only here: an answer without a body may name one
            raise OutboundError(f"the answer is compressed by {self._coding.decode()}, unasked")
        if len(self._kept) + len(data) > self._limit:
            raise too_large(self._limit)
        self._kept += data
        return True

    def end(self, whole: bool) -> bytes:
        if not whole:
            raise OutboundError("the answer breaks off")
        return super().end(whole)


def too_large(limit: int) -> TooLarge:
    """The error for an answer with more than ``limit`` bytes."""
    return TooLarge(f"the answer is larger than {limit} bytes")


def coding_of(fields: Fields) -> bytes:
    """The content coding of an answer by its headers, in lower case; empty if there is none.

    :raises OutboundError: the answer is encoded more than once.
    """
    said = b",".join(value for name, value in fields if name.lower() == b"content-encoding")
    if b"," in said:
        raise OutboundError("the answer is compressed more than once")
    return said.strip().lower()
