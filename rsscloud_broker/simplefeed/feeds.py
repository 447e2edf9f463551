"""Serves the documents of logs.

The recent document of a log is written at most once per change, however many ask for it.  Archived
documents are files; a file that is missing is made again from the rows.

::

    feeds = Feeds(database, Archive(directory), in_thread, clock, urls_of)
    recent = await feeds.recent("events")         # a Written: its body and ETag
    archived = await feeds.document("events", 3)  # a Filed: its path; or a Written

Several processes may not share the directory of the files.  Each may have one of its own, since all
make the same bytes of the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

from attrs import field, frozen
from twisted.internet.defer import DeferredLock
from twisted.python.filepath import FilePath

from rsscloud_broker.database.methods import reading
from rsscloud_broker.interfaces import IClock, IDatabase
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.archive import Archive
from rsscloud_broker.simplefeed.atom import FeedUrls, render
from rsscloud_broker.simplefeed.entries import EntryLink
from rsscloud_broker.simplefeed.log import LogDocument, LogState
from rsscloud_broker.simplefeed.markers import InThread
from rsscloud_broker.util.caches import BoundedDict, TimedCache

#: Seconds for which a recent document is served without reading the log, unless a caller says
#: that it has changed.  Another process may have appended to the log.
FRESH: Final = 1.0

#: How many recent documents are kept in memory.
REMEMBERED: Final = 32


@frozen
class Written:
    """A document that may still change.

    :ivar body: the document as Atom.
    :ivar etag: the value of the ETag header: a hash of the body.
    :ivar updated: the time of its newest entry, in seconds since the epoch.
    :ivar newest: the number of the newest entry of the log.
    """

    body: bytes = field(repr=False)
    etag: str
    updated: float
    newest: int


@frozen
class Filed:
    """An archived document, which never changes.

    :ivar file: the file with the document.  Its twin is beside it, and its time is that of the
        newest entry.
    """

    file: FilePath[str]


class DocumentGone(LookupError):
    """A document was removed from the archive, as it was too old."""


def _no_links(name: str) -> Sequence[EntryLink]:
    return ()


class Feeds:
    """The documents of all logs of a database.

    All methods raise ``Unavailable`` if the database cannot be used now.

    :param in_thread: calls a function in a thread.
    :param urls: returns the URLs of the documents of a log, by its name.
    :param links: returns further links of a recent document, such as one with the relation ``hub``.
    """

    def __init__(
        self,
        database: IDatabase,
        archive: Archive,
        in_thread: InThread,
        clock: IClock,
        urls: Callable[[str], FeedUrls],
        links: Callable[[str], Sequence[EntryLink]] = _no_links,
    ) -> None:
        self._database = database
        self._archive = archive
        self._in_thread = in_thread
        self._urls = urls
        self._links = links
        # The recent documents by log: those that are fresh, and those that were written last.
        self._recent = TimedCache(self._write_if_changed, clock, FRESH, REMEMBERED)
        # Each with the state of its log then: a log may be removed, and made again by its name.
        self._written: BoundedDict[str, tuple[LogState, Written] | None] = BoundedDict(REMEMBERED)
        # The logs that have changed since their recent document was asked for; at most a thousand.
        self._changed: BoundedDict[str, bool] = BoundedDict(1000)
        # Two threads must not write one file at the same time.
        self._writing = DeferredLock()

    _find = reading(log.find_log)
    _read = reading(log.read_document)

    def changed(self, name: str) -> None:
        """Say that entries were appended to a log, so that the next caller gets them."""
        self._changed[name] = True

    async def recent(self, name: str) -> Written | None:
        """The recent document of a log; None if there is no such log."""
        return await self._recent.get(name, newest=self._changed.pop(name, False))

    async def _write_if_changed(self, name: str) -> Written | None:
        """Write the recent document of a log, if the log has changed since it was last written."""
        found: LogState | None = await self._find(name)
        if found is None:
            return None
        known = self._written.get(name, None)
        if known is not None and known[0] == found:
            return known[1]
        document: LogDocument | None = await self._read(name)
        if document is None:
            return None
        written = await self._render(document, recent=True)
        self._written[name] = document.log, written
        return written

    async def document(self, name: str, number: int) -> Written | Filed | None:
        """A document of a log at its permanent URL.

        :returns: None if there is no such log or document.
        :raises DocumentGone: the document was removed.
        :raises OSError: the file of the document cannot be made.
        """
        found: LogState | None = await self._find(name)
        if found is None or not 1 <= number <= found.document:
            return None
        if number < found.document and self._archive.has(found.feed_id, number):
            return Filed(self._archive.file(found.feed_id, number))
        document: LogDocument | None = await self._read(name, number)
        if document is None:
            return None
        if not document.archived:
            return await self._render(document, recent=False)
        return await self._make_filed(document)

    async def _render(self, document: LogDocument, *, recent: bool) -> Written:
        """Render a document in a thread; no file is written."""
        name = document.log.name
        body: bytes = await self._in_thread(
            _render_positional,
            document,
            self._urls(name),
            recent,
            self._links(name) if recent else (),
        )
        etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
        return Written(body, etag, document.updated, document.log.count)

    async def _make_filed(self, document: LogDocument) -> Filed:
        """Make the file of an archived document.

        :raises DocumentGone: its entries are nowhere.
        """
        feed_id, number = document.log.feed_id, document.number
        file = self._archive.file(feed_id, number)
        if document.gone:
            raise DocumentGone(
                f"document {number} of {document.log.name} was removed from the archive"
            )
        await self._writing.acquire()
        try:
            if not self._archive.has(feed_id, number):
                await self._in_thread(_make_file, self._archive, document, self._urls)
        finally:
            self._writing.release()
        return Filed(file)


def _render_positional(
    document: LogDocument, urls: FeedUrls, recent: bool, links: Sequence[EntryLink]
) -> bytes:
    """Render a document, for ``in_thread``: that passes all arguments on by their positions."""
    return render(document, urls, recent=recent, links=links)


def _make_file(archive: Archive, document: LogDocument, urls: Callable[[str], FeedUrls]) -> None:
    """Write the file of an archived document.  It runs in a thread."""
    body = render(document, urls(document.log.name))
    archive.write(document.log.feed_id, document.number, body, document.updated)
