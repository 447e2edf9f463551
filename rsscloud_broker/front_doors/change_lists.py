"""Serves the change lists to crawlers: read-only files, by GET and HEAD.

===========================  =============================================
``/changes.xml``             the pings of the last hours
``/shortChanges.xml``        the pings of the last five minutes
``/YYYY/MM/DD/HH.xml``       the pings of one hour, in UTC; HH from 01 to 24
===========================  =============================================

The sinks write the files, each with a gzipped copy, and replace them whole.  A
crawler that accepts gzip gets the copy, which has an ETag of its own; a crawler that
sends ``If-None-Match`` or ``If-Modified-Since`` gets 304 while the file is unchanged::

    GET /changes.xml HTTP/1.1
    Accept-Encoding: gzip

    HTTP/1.1 200 OK
    Content-Type: text/xml; charset=utf-8
    Content-Encoding: gzip
    Vary: Accept-Encoding
    Cache-Control: public, max-age=60
    ETag: "18a8f2c1d0a3e500-2f1c-gzip"

If the broker is also a WebSub hub, a ``Link`` header names the hub, and the file as the
topic to subscribe to.

If another node has made a file that is not on the disk of this one yet, it is copied first.

Only the names in the table are served: the door compares the path of a request with
them, and never walks the directory by it, so no other file there can be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import IO, Final

from attrs import frozen
from twisted.web.http import datetimeToString
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request
from twisted.web.static import File
from zope.interface import implementer

from rsscloud_broker.config import NoOptions
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.answering import Answer, answer, plain, send
from rsscloud_broker.http.requests import accepted_codings
from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, RoutesOnly
from rsscloud_broker.wire.codings import allows_gzip
from rsscloud_broker.wire.conditional import has_version
from rsscloud_broker.wire.links import hub_and_self
from rsscloud_broker.wire.ranges import asked_part

_ARCHIVE: Final = re.compile(rb"/[0-9]{4}/[0-9]{2}/[0-9]{2}/[0-9]{2}\.xml")

# An archive changes if a ping was committed late, or taken in from another broker, which may be a
# day late.  So caches keep one for a day only if it has not changed for a day.
_MINUTE: Final = b"public, max-age=60"
_HALF_MINUTE: Final = b"public, max-age=30"
_DAY: Final = b"public, max-age=86400"


@implementer(IFrontDoor)
class ChangeListsDoor(RoutesOnly):
    """The front door that serves the change lists and the archives."""

    name = "change_lists"

    def __init__(self, options: NoOptions, parts: FrontDoorParts) -> None:
        self._routes = tuple(
            Route(path, "GET", page, for_everybody=True)
            for path, page in (
                ("/changes.xml", PublishedFile(parts, "/changes.xml", _MINUTE)),
                ("/shortChanges.xml", PublishedFile(parts, "/shortChanges.xml", _HALF_MINUTE)),
                ("/*", _Archives(parts, "/*", _MINUTE)),
            )
        )

    def routes(self) -> Sequence[Route]:
        return self._routes


class PublishedFile(Resource):
    """Serves a file that a sink writes and never removes; 503 until it is written.

    :param path: the path at which it is served, which is also its path below the public
        directory; with ``*`` for the path of the request.
    :param cache_control: the value of the Cache-Control header.
    """

    isLeaf = True

    def __init__(self, parts: FrontDoorParts, path: str, cache_control: bytes) -> None:
        super().__init__()
        self._path = path
        self._directory = parts.public_directory.path
        self._cache_control = cache_control
        link = hub_and_self(parts.public_url, path) if parts.has_hub else ""
        self._link = link.encode()
        self._parts = parts

    def render_GET(self, request: Request) -> bytes | int:
        return self._send(request, self._path)

    def _send(self, request: Request, path: str) -> bytes | int:
        """Answer with a file; one that is not on the disk is copied first."""
        if self._link:
            request.setHeader(b"link", self._link.replace(b"*", path[1:].encode("ascii")))
        file = self._directory + path
        try:
            return self._send_file(request, file)
        except FileNotFoundError:
            return answer(request, self._answer_with_copy(request, path, file))

    def _send_file(self, request: Request, file: str) -> bytes | int:
        """Answer with a file that is on the disk."""
        return _serve(request, file, self._cache_control, self._parts.clock.wall_seconds())

    async def _answer_with_copy(self, request: Request, path: str, file: str) -> Answer | None:
        """Copy a file from the database, and send it.

        :returns: the answer if there is no such file in the database; else None.
        :raises Unavailable: it cannot be copied.
        """
        try:
            if not await self._parts.copy_file(path):
                return self._answer_if_missing(request)
            if request.channel is not None:  # the client has not hung up
                body = self._send_file(request, file)
                if isinstance(body, bytes):  # no file is being sent: the answer is complete
                    request.finish()
        except OSError as error:
            raise Unavailable(str(error)) from error
        return None

    def _answer_if_missing(self, request: Request) -> Answer:
        """The answer if no node has made the file yet."""
        text = "This file has not been made yet. Please come again in a minute."
        return plain(503, text, {"retry-after": "60"})


class _Archives(PublishedFile):
    """Serves the hourly archives; any path that is not an archive's is answered with 404."""

    def render_GET(self, request: Request) -> bytes | int:
        if _ARCHIVE.fullmatch(request.path) is None:
            send(request, plain(404, "There is no such page here."))
            return NOT_DONE_YET
        return self._send(request, request.path.decode("ascii"))

    def _send_file(self, request: Request, file: str) -> bytes | int:
        now = self._parts.clock.wall_seconds()
        is_lasting = now - os.stat(file).st_mtime > 86_400.0
        return _serve(request, file, _DAY if is_lasting else self._cache_control, now)

    def _answer_if_missing(self, request: Request) -> Answer:
        """The answer for an hour that is not over yet, or had no pings."""
        request.responseHeaders.removeHeader(b"link")
        text = "There is no archive of that hour: it is not over yet, or had no pings."
        return plain(404, text)


@frozen
class _Version:
    """The validators of one content of a file (RFC 9110, section 8.8)."""

    etag: bytes
    modified_at: int
    last_modified: bytes


@lru_cache(maxsize=64)
def _version(modified_ns: int, size: int, coding: str) -> _Version:
    """The version of a file; cached, since every request needs it.

    :param modified_ns: when the file was modified, in nanoseconds since the epoch.
    :param size: bytes of the file.
    :param coding: the content coding; empty for none.
    """
    suffix = f"-{coding}" if coding else ""
    # Rounded up: otherwise a change later in the same second would look like the same version.
    seconds = -(-modified_ns // 1_000_000_000)
    return _Version(
        etag=f'"{modified_ns:x}-{size:x}{suffix}"'.encode("ascii"),
        modified_at=seconds,
        last_modified=datetimeToString(seconds),
    )


def _serve(request: Request, path: str, cache_control: bytes, now: float) -> bytes | int:
    """Answer with a file, or with its gzipped copy if the client accepts gzip.

    :param cache_control: the value of the Cache-Control header.
    :param now: the present time, in seconds since the epoch.
    :raises FileNotFoundError: there is no such file.
    """
    if allows_gzip(accepted_codings(request)):
        try:
            return _serve_one(request, f"{path}.gz", "gzip", cache_control, now)
        except FileNotFoundError:
            pass  # send the plain file instead
    return _serve_one(request, path, "", cache_control, now)


def _serve_one(
    request: Request, path: str, coding: str, cache_control: bytes, now: float
) -> bytes | int:
    """Answer with a file, or with 304 if the client has this version."""
    # Most crawlers ask for a newer version, and mostly there is none.  To answer them, the file
    # need not be opened.
    headers = request.requestHeaders
    if headers.hasHeader(b"if-none-match") or headers.hasHeader(b"if-modified-since"):
        status = os.stat(path)
        version = _version(status.st_mtime_ns, status.st_size, coding)
        if _client_has(request, version, now):
            request.setResponseCode(304)
            _set_cache_headers(request, version, cache_control)
            request.finish()  # returning b"" would add "Content-Length: 0"
            return NOT_DONE_YET
    file = open(path, "rb")  # noqa: SIM115 # the producer closes it after sending
    # A sink may replace the file at this path at any moment, so size and ETag come from the
    # file that is open.
    status = os.fstat(file.fileno())
    version = _version(status.st_mtime_ns, status.st_size, coding)
    _set_cache_headers(request, version, cache_control)
    request.setHeader(b"last-modified", version.last_modified)
    request.setHeader(b"accept-ranges", b"bytes")
    _tidy_range(request, version.etag, status.st_size)
    return _OpenFile(path, coding, status.st_size).send(request, file)


def _set_cache_headers(request: Request, version: _Version, cache_control: bytes) -> None:
    """Set the headers that a 304 must have as well (RFC 9110, section 15.4.5)."""
    request.setHeader(b"etag", version.etag)
    request.setHeader(b"cache-control", cache_control)
    request.setHeader(b"vary", b"Accept-Encoding")


class _OpenFile(File):
    """Twisted's file resource, for a file that is already open: it does headers and ranges."""

    type = "text/xml; charset=utf-8"

    def __init__(self, path: str, encoding: str, size: int) -> None:
        super().__init__(path)
        self.encoding = encoding
        self._size = size

    def getFileSize(self) -> int:
        return self._size

    def send(self, request: Request, file: IO[bytes]) -> bytes | int:
        """Send the file, then close it."""
        producer = self.makeProducer(request, file)
        if request.method == b"HEAD":
            file.close()
            return b""
        producer.start()
        return NOT_DONE_YET


def _client_has(request: Request, version: _Version, now: float) -> bool:
    """Whether the client already has this version."""
    tags = request.requestHeaders.getRawHeaders(b"if-none-match")
    since = request.getHeader(b"if-modified-since")
    return has_version(tags, since, (version.etag,), version.modified_at, now)


def _tidy_range(request: Request, etag: bytes, size: int) -> None:
    """Give the Range header the one form that Twisted reads well, as the file's size is known.

    It is removed if the whole file is to be sent: for a range that is not served, for an
    ``If-Range`` that names another version, which Twisted does not look at, and for HEAD.
    """
    part = asked_part((request.getHeader(b"range") or b"").decode("latin-1"), size)
    part_of_another = request.getHeader(b"if-range") not in {None, etag}
    if part is None or part_of_another or request.method == b"HEAD":
        request.requestHeaders.removeHeader(b"range")
        return
    first, end = part  # both are ``size`` for a part beyond the end: Twisted answers with 416
    request.requestHeaders.setRawHeaders(b"range", [b"bytes=%d-%d" % (first, max(first, end - 1))])
