"""The front door of the authoring tool: what is below ``/people``, ``/write`` and ``/micropub``.

``docs/applications/writing.rst`` and ``posting.rst`` have the paths.  Editors call the procedures
of ``metaweblog``, which they find by ``/rsd.xml``.

An uploaded file never changes, so caches may keep it for good.  A browser runs nothing that may be
in it.  Parts of it can be asked for, as players of audio and video do (RFC 9110, section 14).  It
is read from the database piece by piece, as quickly as the client takes it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Final
from urllib.parse import quote

from twisted.logger import Logger
from twisted.python.filepath import FilePath
from twisted.web.server import Request
from twisted.web.xmlrpc import XMLRPC
from zope.interface import implementer

from rsscloud_broker.accounts.names import is_name
from rsscloud_broker.apps.writing.metaweblog import METHODS
from rsscloud_broker.apps.writing.micropub import Micropub
from rsscloud_broker.apps.writing.people_pages import NOTHING_HERE, PeoplePages
from rsscloud_broker.apps.writing.rsd import MEDIA_TYPE, PATH, rsd_document
from rsscloud_broker.apps.writing.upload_rows import CHUNK, StoredUpload
from rsscloud_broker.apps.writing.write_page import WritePage
from rsscloud_broker.apps.writing.writing import Writing
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.answering import Answer, Answers, client_has, send
from rsscloud_broker.http.requests import header, parameter
from rsscloud_broker.interfaces import AppParts, IFrontDoor, Route, SoapService
from rsscloud_broker.web.assets import Asset
from rsscloud_broker.web.callers import for_signed_in
from rsscloud_broker.web.streams import Stream
from rsscloud_broker.wire.ranges import asked_part
from rsscloud_broker.wire.units import YEAR

log = Logger()

_FEED: Final = re.compile(r"/people/([a-z0-9-]{2,32})/(rss\.xml|atom\.xml|feed\.json)")
_PAGE: Final = re.compile(r"/people/([a-z0-9-]{2,32})(?:/([1-9][0-9]{0,17}))?/?")
_FILES: Final = FilePath(str(files("rsscloud_broker.apps.writing")))

#: How many bytes a form has beside the file in it.
_FORM_BYTES: Final = 512 * 1024
_FORM: Final = frozenset({"application/x-www-form-urlencoded"})

#: Kinds of files that browsers show; all others are offered to be saved.
_SHOWN: Final = ("image/", "audio/", "video/")

#: Reads a piece of an upload by the id of the upload and the number of the piece.
_ReadChunk = Callable[[int, int], Awaitable[bytes | None]]


@implementer(IFrontDoor)
class WritingDoor:
    """Serves messages and feeds to everybody, and the page to write on; answers programs."""

    name = "writing"

    def __init__(self, writing: Writing, parts: AppParts) -> None:
        self._people = PeoplePages(parts, writing)
        page = WritePage(parts, writing, self._people)
        self._writing = writing
        self._parts = parts
        micropub = Micropub(writing, parts)
        script = Asset(_FILES.child("write.js"), "text/javascript; charset=utf-8")
        style = Asset(_FILES.child("write.css"), "text/css; charset=utf-8")
        limit = writing.options.max_upload_bytes + _FORM_BYTES
        with_files = frozenset({"multipart/form-data"})
        act, keep = Answers(page.act), Answers(page.keep_typed)
        self._routes = (
            Route("/people", "GET", Answers(self._people.list_authors)),
            Route("/people/*", "GET", Answers(self._answer_below_people), for_everybody=True),
            Route("/write", "GET", for_signed_in(parts.callers, page.show)),
            Route("/write", "POST", act),
            Route("/write", "POST", act, content_types=_FORM, body_limit=_FORM_BYTES),
            Route("/write", "POST", act, content_types=with_files, body_limit=limit),
            Route("/write/unsent", "POST", keep, content_types=_FORM, body_limit=_FORM_BYTES),
            Route("/write.js", "GET", script),
            Route("/write.css", "GET", style),
            Route(PATH, "GET", Answers(self._answer_rsd), for_everybody=True),
            *micropub.routes(),
        )

    def routes(self) -> Sequence[Route]:
        return self._routes

    def xmlrpc_handlers(self) -> Mapping[str, XMLRPC]:
        return {prefix: kind(self._writing, self._parts) for prefix, kind in METHODS.items()}

    def soap_services(self) -> Sequence[SoapService]:
        return []

    async def _answer_rsd(self, request: Request) -> Answer:
        """Answer with the RSD document of an account, or of the broker if no account is named."""
        name = parameter(request, "name")
        home = self._writing.feeds.home_url(name) if is_name(name) else f"{self._parts.public_url}/"
        return Answer(rsd_document(self._parts.public_url, home), f"{MEDIA_TYPE}; charset=utf-8")

    async def _answer_below_people(self, request: Request) -> Answer | None:
        """Answer a request below ``/people/``."""
        path = request.path.decode("latin-1")
        if found := _PAGE.fullmatch(path):
            number = int(found[2]) if found[2] else None
            return await self._people.of_author(request, found[1], number)
        if found := _FEED.fullmatch(path):
            return await self._send_feed(request, found[1], found[2])
        if file := self._writing.files.parse_path(path):
            return await self._send_file(request, *file)
        return NOTHING_HERE

    async def _send_feed(self, request: Request, name: str, file: str) -> Answer | None:
        """Send a feed of an author, and return None; or an answer if there is none."""
        author = await self._writing.store.author_named(name)
        if author is None or not author.is_public:
            return await self._people.nothing_of(name)
        feeds = self._writing.feeds
        feed = (await self._writing.feeds_of(author))[feeds.url(name, file)]
        if request.channel is not None:  # the client has not hung up
            link = feeds.link_header(name, file)
            answers = feed.answers(author.changed_at, self._parts.clock.wall_seconds(), link)
            send(request, answers.answer_to(request))
        return None

    async def _send_file(self, request: Request, name: str, digest: str) -> Answer | None:
        """Send an uploaded file, and return None; or an answer if there is none."""
        upload = await self._writing.store.upload_named(name, digest)
        if upload is None:
            return await self._people.nothing_of(name)
        if request.channel is not None:
            await _send_upload(request, upload, self._writing.store.get_chunk)
        return None


async def _send_upload(request: Request, upload: StoredUpload, read: _ReadChunk) -> None:
    """Send a file, or the part of it that is asked for, and end the request."""
    for name, value in _headers_of(upload).items():
        request.setHeader(name, value)
    etag = f'"{upload.digest[:32]}"'
    if client_has(request, etag):
        request.finish()
        return
    first, end = _wanted_part(request, upload.size, etag)
    if first >= upload.size:
        request.setResponseCode(416)
        request.setHeader("content-range", f"bytes */{upload.size}")
        request.setHeader("content-length", "0")
        request.finish()
        return
    if (first, end) != (0, upload.size):
        request.setResponseCode(206)
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


async def _write(stream: Stream, upload_id: int, first: int, end: int, read: _ReadChunk) -> None:
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
