"""Documents as they are kept in memory and sent, with the headers of their answers."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from email.utils import formatdate
from typing import Final

from attrs import field, frozen
from twisted.web.http import NOT_MODIFIED, OK
from twisted.web.server import Request

from rsscloud_broker.http.requests import accepted_codings
from rsscloud_broker.web.conditional import has_version
from rsscloud_broker.web.feed_answers import STYLED_VARY, shown_type
from rsscloud_broker.wire.codings import allows_gzip

#: How many bytes of documents are kept, and the most of one document with its compressed copy.
BYTES, LARGEST = 32 * 1024 * 1024, 8 * 1024 * 1024

#: The name of a log, and the number of a document; None for the recent one.
Key = tuple[str, int | None]

#: Nothing in a document with contents may run in a browser that shows it, since strangers wrote
#: the contents.  Only the broker's own style sheet is loaded.
_SAFE: Final = (
    b"content-security-policy",
    [b"default-src 'none'; style-src 'self'; sandbox; frame-ancestors 'none'"],
)
_VARY: Final = (b"vary", [STYLED_VARY.encode("ascii")])
_TYPE: Final = "application/atom+xml; charset=utf-8"


@frozen
class ReadyDocument:
    """A document that can be sent.

    :ivar modified_at: the value of Last-Modified, in whole seconds since the epoch.  None if the
        document may change once more in that second.
    :ivar until: when it must be looked up again, by the monotonic clock.
    """

    plain: bytes = field(repr=False)
    packed: bytes = field(repr=False)
    etag: bytes
    modified_at: int | None
    headers: Sequence[tuple[bytes, list[bytes]]]
    until: float

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return len(self.plain) + len(self.packed) + 2000

    def send(self, request: Request) -> None:
        """Answer a request with the document, or with 304 if the client has it."""
        packs = allows_gzip(accepted_codings(request))
        set_header = request.responseHeaders.setRawHeaders
        for name, value in self.headers:
            set_header(name, value)
        tag = self.etag[:-1] + b'-gzip"' if packs else self.etag
        set_header(b"etag", [tag])
        if has_version(request, (self.etag, self.etag[:-1] + b'-gzip"'), self.modified_at):
            request.setResponseCode(NOT_MODIFIED)
            request.finish()
            return
        body = self.packed if packs else self.plain
        request.setResponseCode(OK)
        if packs:
            set_header(b"content-encoding", [b"gzip"])
        set_header(b"content-type", [shown_type(request, _TYPE).encode("ascii")])
        set_header(b"content-length", [b"%d" % len(body)])
        request.write(b"" if request.method == b"HEAD" else body)
        request.finish()


def ready(
    body: bytes,
    packed: bytes,
    etag: str,
    modified_at: int | None,
    cache_control: str,
    link: str,
    until: float,
    *,
    has_contents: bool,
) -> ReadyDocument:
    """A document that can be sent.

    :param etag: the ETag of the body that is not compressed.
    :param link: the value of the Link header; empty for none.
    :param has_contents: whether contents of strangers are in it.
    """
    headers = [_VARY, (b"cache-control", [cache_control.encode("ascii")])]
    if has_contents:
        headers.append(_SAFE)
    if link:
        headers.append((b"link", [link.encode("utf-8")]))
    if modified_at is not None:
        date = formatdate(modified_at, usegmt=True)
        headers.append((b"last-modified", [date.encode("ascii")]))
    return ReadyDocument(body, packed, etag.encode("ascii"), modified_at, headers, until)


def packed(body: bytes) -> bytes:
    """A body, compressed by gzip.  Takes some milliseconds."""
    return gzip.compress(body, 6, mtime=0)
