"""Serves the documents of logs.

The recent document of a log is written at most once per change, however many ask for it.  Archived
documents are files; a file that is missing is made again from the rows.

Several processes may not share the directory of the files.  Each may have one of its own, since all
make the same bytes of the same rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from math import ceil
from typing import Final

from attrs import field, frozen
from twisted.internet.defer import DeferredLock
from twisted.python.filepath import FilePath

from rsscloud_broker.database.methods import reading
from rsscloud_broker.interfaces import IClock, IDatabase
from rsscloud_broker.simplefeed import log
from rsscloud_broker.simplefeed.atom import FeedUrls, render
from rsscloud_broker.simplefeed.entries import EntryLink
from rsscloud_broker.simplefeed.log import LogDocument, LogState
from rsscloud_broker.simplefeed.markers import InThread
from rsscloud_broker.util.atomic_files import publish_file
from rsscloud_broker.util.caches import BoundedDict, TimedCache

#: Seconds for which a recent document is served without reading the log, unless a caller says
#: that it has changed.  Another process may have appended to the log.
FRESH: Final = 1.0

#: How many recent documents are kept in memory.
REMEMBERED: Final = 32

_UUID: Final = re.compile(r"urn:uuid:([0-9a-f-]{36})")
_NAME: Final = re.compile(r"([0-9]{1,18})\.atom(?:\.gz)?")


@frozen
class Written:
    """A document that may still change.

    :ivar body: the document as Atom.
    :ivar etag: the value of the ETag header: a hash of the body.
    :ivar updated: the time of its newest entry, in seconds since the epoch.
    :ivar newest: the number of the newest entry of the log.
    :ivar has_own_second: whether that time, rounded up to a second, is later than that of all
        versions before.  If an entry comes late, its time is that of the entry before it.
    """

    body: bytes = field(repr=False)
    etag: str
    updated: float
    newest: int
    has_own_second: bool


@frozen
class ArchivedFile:
    """An archived document, which never changes.

    :ivar file: the file with the document.  Its twin is beside it, and its time is that of the
        newest entry.
    """

    file: FilePath[str]


class DocumentGone(LookupError):
    """A document was removed from the archive, as it was too old."""


class Archive:
    """The files of archived documents, for web servers: ``N.atom``, and its gzipped twin.

    Each log has a directory below that of the archive, with the UUID of its feed as its name.
    Nobody ever sees half a file.  The methods block.
    """

    def __init__(self, directory: FilePath[str]) -> None:
        self._directory = directory

    def file(self, feed_id: str, number: int) -> FilePath[str]:
        """The file of a document, which need not exist.  ``.gz`` added, it is that of its twin.

        :param feed_id: the id of the feed, as ``Log`` has it.
        """
        found = _UUID.fullmatch(feed_id)
        assert found is not None  # ``log`` has made it
        path: FilePath[str] = self._directory.child(found[1]).child(f"{number}.atom")
        return path

    def has(self, feed_id: str, number: int) -> bool:
        """Whether the file of a document exists, and its twin."""
        file = self.file(feed_id, number)
        return bool(file.isfile() and file.siblingExtension(".gz").isfile())

    def write(self, feed_id: str, number: int, body: bytes, updated: float) -> None:
        """Write the file of a document and its twin; when this returns, they are on disk.

        :param updated: the time of its newest entry, in seconds since the epoch.  It becomes the
            time of the files, so that a web server sends it as Last-Modified.
        :raises OSError: they cannot be written.
        """
        file = self.file(feed_id, number)
        publish_file(file, body)
        for each in (file, file.siblingExtension(".gz")):
            os.utime(each.path, (updated, updated))

    def feed_ids(self) -> set[str]:
        """The ids of the feeds that have files here, or had some."""
        names = self._directory.listdir() if self._directory.isdir() else ()
        return {feed_id for name in names if _UUID.fullmatch(feed_id := f"urn:uuid:{name}")}

    def remove(self, feed_id: str, through: int | None) -> None:
        """Remove the files of documents, if they exist.

        :param through: the number of the last document to remove; None for all, and the directory.
        :raises OSError: one cannot be removed.
        """
        directory = self.file(feed_id, through or 1).parent()
        for name in directory.listdir() if directory.isdir() else ():
            found = _NAME.fullmatch(name)
            if found is not None and (through is None or int(found[1]) <= through):
                with suppress(FileNotFoundError):
                    directory.child(name).remove()
        if through is None:
            with suppress(OSError):  # there is none, or something else is in it
                os.rmdir(directory.path)


class Feeds:
    """The documents of all logs of a database.

    All methods raise ``Unavailable`` if the database cannot be used now.

    :param urls: returns the URLs of the documents of a log, by its name.
    :param links: further links of recent documents, such as one with the relation ``hub``.
    """

    def __init__(
        self,
        database: IDatabase,
        archive: Archive,
        in_thread: InThread,
        clock: IClock,
        urls: Callable[[str], FeedUrls],
        links: Sequence[EntryLink] = (),
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

    async def document(self, name: str, number: int) -> Written | ArchivedFile | None:
        """A document of a log at its permanent URL.

        :returns: None if there is no such log or document.
        :raises DocumentGone: the document was removed.
        :raises OSError: the file of the document cannot be made.
        """
        found: LogState | None = await self._find(name)
        if found is None or not 1 <= number <= found.document:
            return None
        if number < found.document and self._archive.has(found.feed_id, number):
            return ArchivedFile(self._archive.file(found.feed_id, number))
        document: LogDocument | None = await self._read(name, number)
        if document is None:
            return None
        if not document.archived:
            return await self._render(document, recent=False)
        return await self._archive_file(document)

    async def _render(self, document: LogDocument, *, recent: bool) -> Written:
        """Render a document in a thread; no file is written."""
        name = document.log.name
        links = self._links if recent else ()
        rendering = partial(render, document, self._urls(name), recent=recent, links=links)
        body: bytes = await self._in_thread(rendering)
        etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
        seconds = [ceil(entry.updated) for entry in document.entries[:2]]
        has_own_second = len(seconds) == 2 and seconds[0] > seconds[1]
        return Written(body, etag, document.updated, document.log.count, has_own_second)

    async def _archive_file(self, document: LogDocument) -> ArchivedFile:
        """Make the file of an archived document.

        :raises DocumentGone: its entries are nowhere.
        """
        feed_id, number = document.log.feed_id, document.number
        file = self._archive.file(feed_id, number)
        if document.gone:
            raise DocumentGone(
                f"document {number} of {document.log.name} was removed from the archive"
            )
        async with self._writing:
            if not self._archive.has(feed_id, number):
                await self._in_thread(_make_file, self._archive, document, self._urls)
        return ArchivedFile(file)


def _make_file(archive: Archive, document: LogDocument, urls: Callable[[str], FeedUrls]) -> None:
    """Write the file of an archived document.  It runs in a thread."""
    body = render(document, urls(document.log.name))
    archive.write(document.log.feed_id, document.number, body, document.updated)
