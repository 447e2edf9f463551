"""Sends uploaded files to browsers and players.

An upload never changes, so caches may keep it for good.  A browser runs nothing that may be in it.
Parts of it can be asked for, as players of audio and video do (RFC 9110, section 14)::

    GET /people/dave/files/2c26...e730f.mp3 HTTP/1.1
    Range: bytes=1000000-

    HTTP/1.1 206 Partial Content
    Content-Range: bytes 1000000-2999999/3000000

A file is read from the database piece by piece, as quickly as the client takes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import quote

from attrs import frozen
from twisted.logger import Logger
from twisted.web import http
from twisted.web.server import Request

from rsscloud_broker.apps.writing.upload_rows import CHUNK, StoredUpload
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.requests import header
from rsscloud_broker.web.streams import Stream
from rsscloud_broker.wire.ranges import asked_part
from rsscloud_broker.wire.units import YEAR

log = Logger()


#: Kinds of files that browsers show; all others are offered to be saved.
_SHOWN: Final = ("image/", "audio/", "video/")

#: Reads a piece of an upload by the id of the upload and the number of the piece.
ReadChunk = Callable[[int, int], Awaitable[bytes | None]]


@frozen
class _Part:
    """What is sent of a file: the bytes from ``first`` to before ``end``."""

    first: int
    end: int


async def send_upload(request: Request, upload: StoredUpload, read: ReadChunk) -> None:
    """Send a file, or the part of it that is asked for, and end the request."""
    for name, value in _headers_of(upload).items():
        request.setHeader(name, value)
    etag = f'"{upload.digest[:32]}"'
    if request.setETag(etag.encode("ascii")) is http.CACHED:
        request.finish()
        return
    part = _wanted_part(request, upload.size, etag)
    if part.first >= upload.size:
        request.setResponseCode(http.REQUESTED_RANGE_NOT_SATISFIABLE)
        request.setHeader("content-range", f"bytes */{upload.size}")
        request.setHeader("content-length", "0")
        request.finish()
        return
    if part != _Part(0, upload.size):
        request.setResponseCode(http.PARTIAL_CONTENT)
        request.setHeader("content-range", f"bytes {part.first}-{part.end - 1}/{upload.size}")
    request.setHeader("content-length", str(part.end - part.first))
    if request.method == b"HEAD":
        request.finish()
        return
    await _Sending(request, upload, part).send(read)


def _wanted_part(request: Request, size: int, etag: str) -> _Part:
    """The part of a file that a request asks for; the whole if it names none or another version."""
    part = asked_part(header(request, "range"), size)
    if part is None or request.method == b"HEAD" or header(request, "if-range") not in {"", etag}:
        return _Part(0, size)
    return _Part(*part)


class _Sending:
    """Sends a part of one file."""

    def __init__(self, request: Request, upload: StoredUpload, part: _Part) -> None:
        self._request = request
        self._upload = upload
        self._part = part
        self._stream = Stream(request)

    async def send(self, read: ReadChunk) -> None:
        """Send the part, or cut the connection off, so that nobody takes a half for the whole."""
        stream, request = self._stream, self._request
        stream.begin()
        try:
            await self._write(read)
        except Unavailable as error:
            log.error("A file could not be read to its end: {error}", error=error)
            stream.cut_off()
            return
        if not stream.over:
            request.unregisterProducer()
            request.finish()

    async def _write(self, read: ReadChunk) -> None:
        """Write the part piece by piece, until it is sent or the client has hung up."""
        first, end = self._part.first, self._part.end
        for number in range(first // CHUNK, -(-end // CHUNK)):  # rounded up
            data = await read(self._upload.id, number)
            if self._stream.over:
                return
            if data is None:
                raise Unavailable("it was deleted meanwhile")
            start = number * CHUNK
            await self._stream.send(data[max(first - start, 0) : end - start])


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
