"""Serves the documents of the feeds, by GET and HEAD; ``web.feed_answers`` says how.

The recent document of a feed is written at most once per change, however many ask for it.  It may
change at any time, so caches keep it for a few seconds.  Archived documents never change, and
caches keep them for a year; those of a host or a topic for an hour, since its feed may be removed
and made again.  They are files, which are made when somebody first asks for them.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from math import ceil
from typing import Final
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from attrs import frozen
from twisted.web.server import NOT_DONE_YET, Request

from rsscloud_broker.apps.events.names import (
    CHANGES,
    HOST,
    PINGS,
    PREFIX,
    TOPIC,
    recent_path,
    urls_of,
)
from rsscloud_broker.errors import Unavailable
from rsscloud_broker.http.answering import PLAIN, Answer, Answers, send
from rsscloud_broker.http.requests import RequestError
from rsscloud_broker.interfaces import FrontDoorParts
from rsscloud_broker.model import Content, host_of
from rsscloud_broker.model.work import MAX_HISTORY_URL
from rsscloud_broker.simplefeed.atom import MEDIA_TYPE
from rsscloud_broker.simplefeed.feeds import FRESH, ArchivedFile, DocumentGone, Feeds, Written
from rsscloud_broker.util.caches import ByteLimitedCache
from rsscloud_broker.util.urls import normal_form
from rsscloud_broker.web.feed_answers import FeedAnswers
from rsscloud_broker.wire.links import hub_and_self
from rsscloud_broker.wire.text import clean

#: Seconds for which caches keep the recent document, and archived ones; and archived ones of a feed
#: that may be removed, and made again with other documents of the same numbers.
RECENT: Final = "public, max-age=5"
ARCHIVED: Final = "public, max-age=31536000, immutable"
REMOVABLE: Final = "public, max-age=3600"

#: How many bytes of documents are kept, and the most of one document with its compressed copy.
BYTES, LARGEST = 32 * 1024 * 1024, 8 * 1024 * 1024

#: Nothing in a document with contents may run in a browser that shows it, since strangers wrote
#: the contents.  Only the broker's own style sheet is loaded.
_SAFE: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; sandbox; frame-ancestors 'none'"
    )
}
_TYPE: Final = "application/atom+xml; charset=utf-8"

#: Compresses a body.  Takes some milliseconds.
_compress: Final = partial(gzip.compress, compresslevel=6, mtime=0)

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")
_HOST: Final = re.compile(r"[a-z0-9_.:-]{1,255}")
_DOCUMENTS: Final = {f"{PREFIX}/documents/": CHANGES, f"{PREFIX}/pings/documents/": PINGS}
_RECENT: Final = {f"{PREFIX}/recent": CHANGES, f"{PREFIX}/pings/recent": PINGS}

_UNMADE: Final = Answer(
    b"The feed is being made. Please come again in a moment.\n", PLAIN, 503, {"retry-after": "5"}
)


@frozen
class DocumentQuery:
    """The document of a feed that a request asks for.

    :ivar name: the name of the log that the feed shows: see ``names``.
    :ivar number: the number of a document; None for the recent one.
    """

    name: str
    number: int | None = None

    def headers(self, cache_control: str) -> dict[str, str]:
        """The headers of an answer; a document of a topic quotes contents by strangers."""
        safe = _SAFE if self.name.startswith(TOPIC) else {}
        return {"cache-control": cache_control, **safe}


@frozen
class ReadyDocument:
    """A document in memory.

    :ivar answers: the answers to requests for it.
    :ivar until: when it must be looked up again, by the monotonic clock.
    """

    answers: FeedAnswers
    until: float


def requested_document(path: str, query: str) -> DocumentQuery:
    """The document that a path and a query ask for.

    :raises RequestError: they name no document that can exist.
    """
    if name := _RECENT.get(path):
        return DocumentQuery(name)
    for prefix, name in _DOCUMENTS.items():
        if path.startswith(prefix):
            return DocumentQuery(name, _document_number(path.removeprefix(prefix)))
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        fields = {}
    # Reversed, so that of names which differ in case only, the first one counts.
    first = {name.lower(): values[0] for name, values in reversed(fields.items())}
    number = _document_number(first["document"]) if "document" in first else None
    if path == f"{PREFIX}/topic":
        return DocumentQuery(TOPIC + _parse_topic(first.get("url", "")), number)
    return DocumentQuery(HOST + _parse_host(first.get("name", "")), number)


def _document_number(text: str) -> int:
    """The number of a document; raises ``RequestError`` if the text is none."""
    if not _NUMBER.fullmatch(text):
        raise RequestError(
            404,
            f"There is no document {clean(text)[:30]!r}: documents have the numbers 1, 2, 3 and so "
            "on. Begin with the recent document, and follow its links.",
        )
    return int(text)


def _parse_topic(text: str) -> str:
    """The URL of a topic, in normal form; raises ``RequestError`` if it cannot be one."""
    example = f"{PREFIX}/topic?url=http://blog.example/rss.xml"
    if not text:
        raise RequestError(400, f"Say which topic you mean, such as {example}")
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_usable = False
    if not is_usable or len(text) > MAX_HISTORY_URL or clean(text) != text:
        raise RequestError(
            400,
            f"The topic {clean(text)[:100]!r} is not the URL of a topic: it must be an http or "
            f"https URL of {MAX_HISTORY_URL} characters at most, such as {example}",
        )
    return normal_form(text)


def _parse_host(text: str) -> str:
    """The name of a host, as the broker writes it; raises ``RequestError`` if it cannot be one."""
    example = f"{PREFIX}/host?name=blog.example"
    if not text:
        raise RequestError(400, f"Say which host you mean, such as {example}")
    bracketed = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
    host = host_of(f"http://{bracketed}/") if not re.search(r"[/?#@\\\s]", text) else ""
    if not _HOST.fullmatch(host):
        raise RequestError(
            400, f"{clean(text)[:100]!r} is not the name of a host, which is such as {example}"
        )
    return host


class EventDocuments(Answers):
    """The resource of all documents; those that were served last stay in memory."""

    def __init__(self, feeds: Feeds, parts: FrontDoorParts) -> None:
        super().__init__(self._respond)
        self._feeds = feeds
        self._parts = parts
        self._cache: ByteLimitedCache[DocumentQuery, ReadyDocument] = ByteLimitedCache(
            BYTES, LARGEST, lambda ready: ready.answers.size
        )
        self._times_forgotten = 0  # a document that was read before the last time is not cached

    def forget_recent(self, names: Sequence[str]) -> None:
        """Forget the recent documents of logs that have new entries: they are written anew."""
        self._times_forgotten += 1
        for name in names:
            self._feeds.changed(name)
            self._cache.drop(DocumentQuery(name))

    async def read(self, url: str) -> Content | None:
        """The recent document at a URL of this broker, as a topic for the broker; or None.

        It is a topic at one URL only, since its subscribers are notified of that.
        """
        parts = urlsplit(url.removeprefix(self._parts.public_url))
        try:
            wanted = requested_document(parts.path, parts.query)
        except RequestError:
            return None
        own = normal_form(self._parts.public_url + recent_path(wanted.name))
        if wanted.number is not None or url != own:
            return None
        self._feeds.changed(wanted.name)  # perhaps by another process, just now
        found = await self._feeds.recent(wanted.name)
        return None if found is None else Content(found.body, MEDIA_TYPE)

    def render(self, request: Request) -> int:
        """Answer at once if the document is in memory and fresh; else look it up (``_respond``)."""
        try:
            wanted = _requested_by(request)
        except RequestError:
            return super().render(request)  # which says what is wrong
        found = self._cache.get(wanted)
        if found is None or self._parts.clock.seconds() >= found.until:
            return super().render(request)
        send(request, found.answers.answer_to(request))
        return NOT_DONE_YET

    async def _respond(self, request: Request) -> Answer | None:
        """Look a document up and send it; returns an answer, if there is none, that says why."""
        wanted, before = _requested_by(request), self._times_forgotten
        try:
            found = await self._find(wanted)
        except DocumentGone as error:
            return Answer(f"This is gone: {clean(str(error))}.\n".encode(), PLAIN, 410)
        except OSError as error:
            raise Unavailable(str(error)) from error
        if found is None:
            if wanted.number is None and wanted.name in _RECENT.values():
                return _UNMADE
            return Answer(f"{await self._explain_missing(wanted)}\n".encode(), PLAIN, 404)
        if self._times_forgotten == before:
            self._cache.keep(wanted, found)
        if request.channel is not None:  # None: it has hung up
            send(request, found.answers.answer_to(request))
        return None

    async def _find(self, wanted: DocumentQuery) -> ReadyDocument | None:
        """The document, ready to be sent; None if there is no such feed or document."""
        if wanted.number is None:
            written = await self._feeds.recent(wanted.name)
            return None if written is None else await self._prepare_recent(wanted, written)
        found = await self._feeds.document(wanted.name, wanted.number)
        if isinstance(found, ArchivedFile):
            own = urls_of(self._parts.public_url, wanted.name).of(wanted.number)
            if await self._parts.in_thread(_remove_if_moved, found, own):
                return await self._find(wanted)  # the feeds make the file again, with present links
            return await self._prepare_archived(wanted, found)
        return None if found is None else await self._prepare_recent(wanted, found)

    async def _prepare_recent(self, wanted: DocumentQuery, written: Written) -> ReadyDocument:
        """The recent document, or the same at its permanent URL; it is compressed if it is new."""
        known = self._cache.get(wanted)
        is_same = known is not None and known.answers.plain.etag == written.etag
        if known and is_same:
            packed = known.answers.packed.whole.body
        else:
            packed = await self._parts.in_thread(_compress, written.body)
        # Another version of the same second must not look like this one, also if it comes later.
        at = ceil(written.updated) if written.has_own_second else None
        is_topic = self._parts.has_hub and wanted.number is None
        link = hub_and_self(self._parts.public_url, recent_path(wanted.name)) if is_topic else ""
        now, more = self._parts.clock.wall_seconds(), wanted.headers(RECENT)
        tag = written.etag.strip('"')
        answers = FeedAnswers.of(
            written.body, packed, _TYPE, tag, at, now, link, more, is_styled=True
        )
        return ReadyDocument(answers, self._parts.clock.seconds() + FRESH)

    async def _prepare_archived(self, wanted: DocumentQuery, found: ArchivedFile) -> ReadyDocument:
        """An archived document, read from its file and from the compressed twin of that."""
        body, packed, at = await self._parts.in_thread(_read_file_and_copy, found)
        tag = blake2b(body, digest_size=12).hexdigest()
        # Before it was archived, the same entries were at this URL, without the link to the next.
        at += 1
        more = wanted.headers(ARCHIVED if wanted.name in _RECENT.values() else REMOVABLE)
        now = self._parts.clock.wall_seconds()
        answers = FeedAnswers.of(body, packed, _TYPE, tag, at, now, "", more, is_styled=True)
        # So a document that is removed, as it is too old, may still be served for a minute.
        return ReadyDocument(answers, self._parts.clock.seconds() + 60.0)

    async def _explain_missing(self, wanted: DocumentQuery) -> str:
        """Why there is no such document, for people."""
        kind, _, of = wanted.name.partition(":")
        if wanted.number is not None and await self._feeds.recent(wanted.name) is not None:
            recent = recent_path(wanted.name)
            return f"There is no document {wanted.number} yet. The newest is {recent}"
        if kind == "topic":
            return (
                f"This broker keeps no history of {of}: it keeps the contents of some topics only. "
                f"All changes are in {PREFIX}/recent"
            )
        return f"Nothing has changed at {of} that this broker knows of."


def _requested_by(request: Request) -> DocumentQuery:
    """The document that a request asks for; raises ``RequestError``."""
    return _parse_target(request.path, request.uri.partition(b"?")[2])


@lru_cache(maxsize=1000)
def _parse_target(path: bytes, query: bytes) -> DocumentQuery:
    """``requested_document`` of the bytes of a URL; cached, as most ask for the same few."""
    return requested_document(path.decode("utf-8", "replace"), query.decode("utf-8", "replace"))


def _remove_if_moved(found: ArchivedFile, url: str) -> bool:
    """Remove a file that was made under another ``public_url``; returns whether it was removed.

    Nobody could follow its links back.

    :param url: the URL at which the document is now.
    """
    written = escape(url, {'"': "&quot;"})
    if f'href="{written}"'.encode() in found.file.getContent():
        return False
    found.file.remove()
    return True


def _read_file_and_copy(found: ArchivedFile) -> tuple[bytes, bytes, int]:
    """The body of a file, the same compressed, and its time, rounded up to a second."""
    file = found.file
    return (
        file.getContent(),
        file.siblingExtension(".gz").getContent(),
        ceil(file.getModificationTime()),
    )
