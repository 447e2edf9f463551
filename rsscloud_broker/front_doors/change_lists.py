"""Serves the change lists to crawlers: read-only files, by GET and HEAD.

===========================  =============================================
``/changes.xml``             the pings of the last hours
``/shortChanges.xml``        the pings of the last five minutes
``/YYYY/MM/DD/HH.xml``       the pings of one hour, in UTC; HH from 01 to 24
===========================  =============================================

The sinks make the files, each with a gzipped twin, and replace them whole.  A
crawler that allows gzip gets the twin, with an ETag of its own; one that sends
``If-None-Match`` or ``If-Modified-Since`` gets 304 while nothing has changed::

    GET /changes.xml HTTP/1.1
    Accept-Encoding: gzip

    HTTP/1.1 200 OK
    Content-Type: text/xml; charset=utf-8
    Content-Encoding: gzip
    Vary: Accept-Encoding
    Cache-Control: public, max-age=60
    ETag: "18a8f2c1d0a3e500-2f1c-gzip"

Where the broker is a WebSub hub too, answers name it, and themselves as the topic to
subscribe to, in a ``Link`` header.

Only the names in the table are looked for: a request's path is compared with
them as it came and never used to walk the directory, so nothing else there can
be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import IO, Final

from attrs import frozen
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request
from twisted.web.static import File
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.interfaces import FrontDoorParts, IFrontDoor, Route, SoapService
from rsscloud_broker.wire.links import hub_and_self

_ARCHIVE: Final = re.compile(rb"/([0-9]{4})/([0-9]{2})/([0-9]{2})/([0-9]{2}\.xml)")

# Several ranges in one request could ask for a large file many times over, and
# Twisted fails on a suffix longer than the file: only ``bytes=FIRST-[LAST]`` is
# taken, other ranges are ignored, as RFC 9110 allows.
_RANGE: Final = re.compile(rb"bytes=[0-9]{1,15}-[0-9]{0,15}")

# Archives do not change, but for a ping that was committed late.
_MINUTE: Final = b"public, max-age=60"
_HALF_MINUTE: Final = b"public, max-age=30"
_DAY: Final = b"public, max-age=86400"


@frozen
class ChangeListsOptions:
    """Options of the front door of the change lists: none."""


@implementer(IFrontDoor)
class ChangeListsDoor:
    """The pages of the change lists."""

    name = "change_lists"

    def __init__(self, options: ChangeListsOptions, parts: FrontDoorParts) -> None:
        self._routes = tuple(
            Route(path, "GET", page, for_everybody=True)
            for path, page in (
                ("/changes.xml", PublishedFile(parts, "/changes.xml", _MINUTE)),
                ("/shortChanges.xml", PublishedFile(parts, "/shortChanges.xml", _HALF_MINUTE)),
                ("/*", _Archives(parts)),
            )
        )

    def routes(self) -> Sequence[Route]:
        return self._routes

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {}

    def soap_services(self) -> Sequence[SoapService]:
        return ()


def topic_link(parts: FrontDoorParts, path: str) -> bytes | None:
    """The Link header of what is served at a path; None where nobody can subscribe to it."""
    return hub_and_self(parts.public_url, path).encode() if parts.has_hub else None


class PublishedFile(Resource):
    """A file of a sink's that is always there, once it has been made.

    :param path: where it is served, and where it lies below the public directory.
    :param max_age: seconds for which others may keep the answer.
    """

    isLeaf = True

    def __init__(self, parts: FrontDoorParts, path: str, cache_control: bytes) -> None:
        super().__init__()
        self._path = parts.public_directory.descendant(path[1:].split("/")).path
        self._cache_control = cache_control
        self._link = topic_link(parts, path)

    def render_GET(self, request: Request) -> bytes | int:
        if self._link:
            request.setHeader(b"link", self._link)
        try:
            return _serve(request, self._path, self._cache_control)
        except FileNotFoundError:
            request.setHeader(b"retry-after", b"60")
            return _say(
                request,
                http.SERVICE_UNAVAILABLE,
                b"This file has not been made yet. Please come again in a minute.\n",
            )


class _Archives(Resource):
    """The hourly archives; 404 for anything that is not the path of one."""

    isLeaf = True

    def __init__(self, parts: FrontDoorParts) -> None:
        super().__init__()
        self._directory = parts.public_directory
        link = topic_link(parts, "/*")  # what is the same for all of them is made once
        self._link = link.split(b"*") if link else None

    def render_GET(self, request: Request) -> bytes | int:
        found = _ARCHIVE.fullmatch(request.path)
        if found is None:
            return _say(request, http.NOT_FOUND, b"There is no such page here.\n")
        segments = [segment.decode("ascii") for segment in found.groups()]
        if self._link:
            request.setHeader(b"link", request.path[1:].join(self._link))
        try:
            return _serve(request, self._directory.descendant(segments).path, _DAY)
        except FileNotFoundError:
            request.responseHeaders.removeHeader(b"link")
            return _say(
                request,
                http.NOT_FOUND,
                b"There is no archive of that hour: it is not over yet, or had no pings.\n",
            )


def _say(request: Request, status: int, sentence: bytes) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"text/plain; charset=utf-8")
    request.setHeader(b"content-length", b"%d" % len(sentence))
    return b"" if request.method == b"HEAD" else sentence


@frozen
class _Version:
    """What tells one content of a file from another."""

    etag: bytes
    modified_at: int
    last_modified: bytes


@lru_cache(maxsize=64)
def _version(modified_ns: int, size: int, coding: str) -> _Version:
    """The version of a file with these times and bytes, in a coding or in none.

    As each question asks for it, a version is not put into words each time.
    """
    suffix = f"-{coding}" if coding else ""
    seconds = -(-modified_ns // 1_000_000_000)  # up, or a change in this second goes unseen
    return _Version(
        etag=f'"{modified_ns:x}-{size:x}{suffix}"'.encode("ascii"),
        modified_at=seconds,
        last_modified=http.datetimeToString(seconds),
    )


def _serve(request: Request, path: str, cache_control: bytes) -> bytes | int:
    """Answer with a file, or with its gzipped twin where that is allowed.

    :param cache_control: for how long others may keep the answer.
    :raises FileNotFoundError: there is no such file.
    """
    codings = b",".join(request.requestHeaders.getRawHeaders(b"accept-encoding", ()))
    if _allows_gzip(codings):
        try:
            return _serve_one(request, f"{path}.gz", "gzip", cache_control)
        except FileNotFoundError:
            pass  # the plain file serves as well
    return _serve_one(request, path, "", cache_control)


def _serve_one(request: Request, path: str, coding: str, cache_control: bytes) -> bytes | int:
    # Most crawlers ask whether there is anything new, and mostly there is not: to
    # know that, a file need not be opened.
    if _is_conditional(request):
        status = os.stat(path)
        version = _version(status.st_mtime_ns, status.st_size, coding)
        if _has(request, version):
            request.setResponseCode(http.NOT_MODIFIED)
            _describe(request, version, cache_control)
            request.finish()  # returning it would give it the length of an empty body
            return NOT_DONE_YET
    file = open(path, "rb")  # noqa: SIM115 # it is closed when it has been sent
    # The size and the tag are those of the file that is open: the one at this
    # path may be replaced at any moment.
    status = os.fstat(file.fileno())
    version = _version(status.st_mtime_ns, status.st_size, coding)
    _describe(request, version, cache_control)
    request.setHeader(b"last-modified", version.last_modified)
    request.setHeader(b"accept-ranges", b"bytes")
    _tidy_range(request, version.etag)
    return _OpenFile(path, coding, status.st_size).send(request, file)


def _describe(request: Request, version: _Version, cache_control: bytes) -> None:
    """Say what is said with 304 too (RFC 9110, section 15.4.5)."""
    request.setHeader(b"etag", version.etag)
    request.setHeader(b"cache-control", cache_control)
    request.setHeader(b"vary", b"Accept-Encoding")


class _OpenFile(File):
    """Twisted's file resource, for the headers and ranges of a file already open."""

    type = "text/xml; charset=utf-8"

    def __init__(self, path: str, encoding: str, size: int) -> None:
        super().__init__(path)
        self.encoding = encoding
        self._size = size

    def getFileSize(self) -> int:
        return self._size

    def send(self, request: Request, file: IO[bytes]) -> bytes | int:
        """Answer with the file, which is closed in the end."""
        producer = self.makeProducer(request, file)
        if request.method == b"HEAD":
            file.close()
            return b""
        producer.start()
        return NOT_DONE_YET


def _is_conditional(request: Request) -> bool:
    headers = request.requestHeaders
    return headers.hasHeader(b"if-none-match") or headers.hasHeader(b"if-modified-since")


def _has(request: Request, version: _Version) -> bool:
    """Whether who asks has this version already (RFC 9110, section 13).

    Tags decide alone where there are any, and are compared weakly.
    """
    tags = request.requestHeaders.getRawHeaders(b"if-none-match")
    if tags is None:
        since = _seconds(request.getHeader(b"if-modified-since") or b"")
        return since is not None and since >= version.modified_at
    known = {tag.strip().removeprefix(b"W/") for tag in b",".join(tags).split(b",")}
    return version.etag in known or b"*" in known


@lru_cache(maxsize=64)
def _seconds(date: bytes) -> int | None:
    """Seconds since the epoch of a date; None if it is none.

    Most of those who ask say the same date: that of the current version.
    """
    try:
        return int(http.stringToDatetime(date.split(b";", 1)[0]))
    except (ValueError, IndexError):  # the latter: it ends too early
        return None


def _tidy_range(request: Request, etag: bytes) -> None:
    """Remove a range that is not to be served.

    Twisted knows no If-Range, and no producer may write for HEAD; what it would
    say of the whole is said there.
    """
    part_of_another = request.getHeader(b"if-range") not in {None, etag}
    servable = _RANGE.fullmatch(request.getHeader(b"range") or b"")
    if part_of_another or not servable or request.method == b"HEAD":
        request.requestHeaders.removeHeader(b"range")


@lru_cache(maxsize=64)
def _allows_gzip(values: bytes) -> bool:
    """Whether Accept-Encoding lets us answer in gzip (RFC 9110, section 12.5.3)."""
    weights: dict[bytes, bool] = {}
    for value in values.lower().split(b","):
        coding, *parameters = (part.strip() for part in value.split(b";"))
        weights[coding] = all(_is_positive(parameter) for parameter in parameters)
    return weights.get(b"gzip", weights.get(b"x-gzip", weights.get(b"*", False)))


def _is_positive(parameter: bytes) -> bool:
    """False for ``q=0``, ``q=0.000`` and a q that is no number."""
    name, _, value = parameter.partition(b"=")
    if name.strip() != b"q":
        return True
    try:
        return float(value) > 0
    except ValueError:
        return False
