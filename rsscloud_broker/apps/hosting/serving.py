"""Serves the files, by GET and HEAD.

::

    GET /feeds/dave/rss.xml HTTP/1.1
    Accept-Encoding: gzip

    HTTP/1.1 200 OK
    Content-Type: application/rss+xml; charset=utf-8
    Content-Encoding: gzip
    Vary: Accept-Encoding
    Cache-Control: public, max-age=0, must-revalidate
    ETag: "5891b5b522d5df08-gzip"
    Last-Modified: Sun, 06 Nov 2025 08:49:37 GMT
    Link: <https://broker.example/websub>; rel="hub", <https://...>; rel="self"

A client with ``If-None-Match`` or ``If-Modified-Since`` gets 304 while the file is unchanged.
Caches must ask each time, since a subscriber reads the feed at the moment when it has changed.

The files are by strangers, so no browser may run anything in them.
"""

from __future__ import annotations

import re
from email.utils import formatdate
from typing import Final

from twisted.web.server import NOT_DONE_YET, Request
from zope.interface import implementer

from rsscloud_broker.apps.hosting import documents
from rsscloud_broker.apps.hosting.cache import Answers as AnswersOfFile
from rsscloud_broker.apps.hosting.cache import Cache, Entry, Key
from rsscloud_broker.apps.hosting.options import prefixes_of
from rsscloud_broker.apps.hosting.rows import Served
from rsscloud_broker.interfaces import IFrontDoor, Route, RoutesOnly
from rsscloud_broker.web.answers import PLAIN, Answer, Answers, accepted_codings, send
from rsscloud_broker.wire.codings import allows_gzip
from rsscloud_broker.wire.http_dates import http_date

_ETAGS: Final = re.compile(r'(?:W/)?("[^"]*")')

#: A browser that shows a file runs nothing in it, and loads nothing for it.
SAFE: Final = {
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
_CACHED: Final = {"cache-control": "public, max-age=0, must-revalidate", "vary": "accept-encoding"}


def answers_of(content: Served, link: str, now: float) -> AnswersOfFile:
    """The answers to requests for a file.

    Of several versions saved in one second all but the first have a Last-Modified in the future.
    It is left out until then (RFC 9110, section 8.8.2.1).

    :param link: the value of its Link header; empty for none.
    """
    digest = content.digest.hex()[:32]
    plain, packed = f'"{digest}"', f'"{digest}-gzip"'
    common = {**SAFE, **_CACHED}
    if content.modified_at <= now:
        common["last-modified"] = formatdate(content.modified_at, usegmt=True)
    if link:
        common["link"] = link

    def answer(body: bytes, etag: str, status: int = 200, coding: str = "") -> Answer:
        more = {"content-encoding": coding} if coding else {}
        return Answer(body, content.media_type, status, {**common, "etag": etag, **more})

    plain_answer, plain_unchanged = answer(content.body, plain), answer(b"", plain, 304)
    if not content.packed:
        return AnswersOfFile(
            plain_answer, plain_answer, plain_unchanged, plain_unchanged, frozenset({plain})
        )
    return AnswersOfFile(
        plain_answer,
        answer(content.packed, packed, coding="gzip"),
        plain_unchanged,
        answer(b"", packed, 304),
        frozenset({plain, packed}),
    )


class FileResource(Answers):
    """Serves the files below a path.

    :param prefix: the path, without a slash at the end.
    """

    def __init__(self, cache: Cache, prefix: str) -> None:
        super().__init__(self._read)
        self._cache = cache
        self._start = len(prefix) + 1

    def render(self, request: Request) -> int:
        entry = self._cache.fresh(self._key(request))
        if entry is None:
            return super().render(request)
        send(request, self._answer_of(request, entry))
        return NOT_DONE_YET

    def _key(self, request: Request) -> Key:
        path = request.path.decode("latin-1")[self._start :]
        name, _, rest = path.partition("/")
        return name, rest

    async def _read(self, request: Request) -> Answer:
        name, path = self._key(request)
        may_be = documents.is_path(f"{name}/{path}")  # otherwise it need not be looked up
        found = await self._cache.read((name, path)) if may_be else None
        if found is None:
            return Answer(b"There is no such feed here.\n", PLAIN, 404)
        if not isinstance(found, Entry):
            return Answer(b"This is gone: its author has deleted it.\n", PLAIN, 410)
        return self._answer_of(request, found)

    def _answer_of(self, request: Request, entry: Entry) -> Answer:
        answers = entry.answers
        packs = allows_gzip(accepted_codings(request))
        if self._is_known(request, entry):
            return answers.packed_unchanged if packs else answers.plain_unchanged
        return answers.packed if packs else answers.plain

    def _is_known(self, request: Request, entry: Entry) -> bool:
        """Whether the client has the file as it is (RFC 9110, section 13.2.2)."""
        known = request.getHeader("if-none-match")
        if known is not None:
            is_same = not entry.answers.etags.isdisjoint(_ETAGS.findall(known[:4000]))
            return is_same or known.strip() == "*"
        since = request.getHeader("if-modified-since")
        if since is None:
            return False
        at = http_date(since)
        return at is not None and entry.content.modified_at <= at


@implementer(IFrontDoor)
class FilesDoor(RoutesOnly):
    """The front door that serves the files to everybody.

    :param base: the URL below which the files are public.  A reverse proxy may also pass its path.
    """

    name = "hosting_files"

    def __init__(self, cache: Cache, base: str) -> None:
        self._routes = [
            Route(f"{path}/*", "GET", FileResource(cache, path), for_everybody=True)
            for path in prefixes_of(base)
        ]

    def routes(self) -> list[Route]:
        return self._routes
