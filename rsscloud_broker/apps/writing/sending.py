"""Sends uploaded files to browsers and players.

An upload never changes, so caches may keep it for good.  A browser runs nothing that may be in it.
Parts of it can be asked for, as players of audio and video do (RFC 9110, section 14).

A file is read from the database piece by piece, as quickly as the client takes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

from twisted.logger import Logger
from twisted.web import http
from twisted.web.server import Request

from rsscloud_broker.apps.writing.upload_rows import CHUNK, StoredUpload
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.answering import client_has
from rsscloud_broker.http.requests import header
from rsscloud_broker.web.streams import Stream
from rsscloud_broker.wire.ranges import asked_part
from rsscloud_broker.wire.units import YEAR

log = Logger()


#: Kinds of files that browsers show; all others are offered to be saved.
_SHOWN: Final = ("image/", "audio/", "video/")

#: Reads a piece of an upload by the id of the upload and the number of the piece.
ReadChunk = Callable[[int, int], Awaitable[bytes | None]]


async def send_upload(request: Request, upload: StoredUpload, read: ReadChunk) -> None:
    """Send a file, or the part of it that is asked for, and end the request."""
    for name, value in _headers_of(upload).items():
        request.setHeader(name, value)
    etag = f'"{upload.digest[:32]}"'
    if client_has(request, etag):
        request.finish()
        return
    first, end = _wanted_part(request, upload.size, etag)
    if first >= upload.size:
        request.setResponseCode(http.REQUESTED_RANGE_NOT_SATISFIABLE)
        request.setHeader("content-range", f"bytes */{upload.size}")
        request.setHeader("content-length", "0")
        request.finish()
        return
    if (first, end) != (0, upload.size):
        request.setResponseCode(http.PARTIAL_CONTENT)
        request.setHeader("content-range", f"bytes {first}-{end - 1}/{upload.size}")
    request.setHeader("content-length", str(end - first))
    if request.method == b"HEAD":
        request.finish()
        return
    stream = Stream(request)
    stream.begin()
    try:
        await _write(stream, upload.id, first, end, read)
    except Unavailable as error:
        log.error("A file could not be read to its end: {error}", error=error)
        stream.cut_off()  # so that nobody takes a half for the whole
        return
    if not stream.over:
        request.unregisterProducer()
        request.finish()


def _wanted_part(request: Request, size: int, etag: str) -> tuple[int, int]:
    """The first byte that is asked for, and the one after the last; without a range, all."""
    part = asked_part(header(request, "range"), size)
    if part is None or request.method == b"HEAD" or header(request, "if-range") not in {"", etag}:
        return 0, size
    return part


async def _write(stream: Stream, upload_id: int, first: int, end: int, read: ReadChunk) -> None:
    """Write a part piece by piece, until it is sent or the client has hung up."""
    for number in range(first // CHUNK, -(-end // CHUNK)):  # rounded up
        data = await read(upload_id, number)
        if stream.over:
            return
        if data is None:
            raise Unavailable("it was deleted meanwhile")
        start = number * CHUNK
        await stream.send(data[max(first - start, 0) : end - start])


def _headers_of(upload: StoredUpload) -> Mapping[str, str]:
    """The headers of all answers with a file; browsers show only some kinds of files."""
    is_shown = upload.media_type.startswith(_SHOWN)
    how = "inline" if is_shown else "attachment"
    return {
        "accept-ranges": "bytes",
        "cache-control": f"public, max-age={YEAR}, immutable",
        "content-disposition": f"{how}; filename*=UTF-8''{quote(upload.name, safe='')}",
        "content-security-policy": "sandbox; default-src 'none'",
        "content-type": upload.media_type,
        "cross-origin-resource-policy": "cross-origin",
        "x-content-type-options": "nosniff",
    }
