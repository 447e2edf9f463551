"""Copies the files for crawlers that other nodes have made to the disk of this node.

``files`` stores them.  The mirror learns of a new one by a hint, and looks twice a minute in
case a hint was lost.  When the broker starts, the mirror compares the disk with the database: it
stores archives that the database lacks, which a broker on SQLite has left on the disk, and copies
what is missing, so that a node that joins has every archive of the past.

A file that somebody asks for before it is there is copied at once (``copy``).

On SQLite there are no other nodes, and the mirror does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from errno import ENOSPC
from typing import Final

from twisted.internet.defer import CancelledError, DeferredLock
from twisted.python.filepath import FilePath
from zope.interface import implementer

from rsscloud_broker.errors import ClaimLost, Unavailable
from rsscloud_broker.events import Event, FileCopied, WorkHinted
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.model.shared import SharedDocument
from rsscloud_broker.sinks.files import archives_in, drafted, publish_draft, records_in
from rsscloud_broker.util.atomic_files import Copy, Draft, is_version
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.clock import EachPeriod

#: How many documents are compared with the disk at a time.
AT_ONCE: Final = 500

#: For how many seconds, and of how many files, the mirror remembers that there is none.
MISSING, MISSING_NAMES = 5.0, 10_000

#: The archive sink may write the same archive at the same time, under the usual name.
_UNFINISHED: Final = ".stored.part"

#: Paths that lead to no file outside of the public directory.
_NAME: Final = re.compile(r"(?:/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)+")


@implementer(IEventSink)
class Mirror(EachPeriod):
    """Keeps the public directory of this node equal to the documents in the database."""

    name = "mirror"
    handles: tuple[type[Event], ...] = (WorkHinted,)

    def __init__(self, parts: SinkParts) -> None:
        super().__init__(parts.clock, 30, self._store_and_copy, name=self.name, at_start=True)
        self._parts = parts
        self._store = parts.store
        self._lock = DeferredLock()  # one file is copied at a time
        self._missing: BoundedDict[str, float] = BoundedDict(MISSING_NAMES)
        self._seen = 0.0  # the time of the newest document that was looked at
        self._has_stored = self._is_hinted = False
        self._problem = ""

    def startService(self) -> None:
        if self._store.shares_work():
            super().startService()

    def _begin(self) -> None:
        if self._run is None:  # a run that is under way copies once more for each hint
            super()._begin()

    async def handle(self, event: Event) -> None:
        if self.running and isinstance(event, WorkHinted) and event.kind == "document":
            self._is_hinted = True
            self._begin()

    async def copy(self, name: str) -> bool:
        """Copy the present version of a document to the disk, unless it is there.

        :param name: the path at which it is served; any path that a stranger asks for.
        :returns: whether there is such a document, and it is on the disk.
        :raises Unavailable: the database cannot be used.
        :raises OSError: the file cannot be written, or is damaged in the database.
        """
        now = self._parts.clock.seconds()
        if not self._store.shares_work() or now < self._missing.get(name, 0.0):
            return False
        found = await self._store.shared_documents([name])
        if not found:
            self._missing[name] = now + MISSING
            return False
        if await self._differing(found) and not await self._copy(found[0]):
            return await self.copy(name)  # a newer version has just been stored
        return True

    async def _store_and_copy(self) -> None:
        """Store archives that the database lacks, and copy documents that this disk lacks."""
        problem, self._problem = self._problem, ""
        if not self._has_stored:
            self._has_stored = await self._store_archives(problem)
        self._is_hinted = True
        while self._is_hinted and self.running:
            self._is_hinted = False
            await self._copy_new(problem)
        if problem and not self._problem:
            self.log.info("All files for crawlers are copied again.")

    async def _attempt(self, work: Awaitable[object], problem: str) -> bool:
        """Wait for work on one file; if it fails, that is logged and keeps no others waiting.

        :param problem: what was logged the last time, which is not logged again.
        """
        try:
            await work
        except (CancelledError, Unavailable):
            raise
        except Exception as error:
            is_first, self._problem = not self._problem, self._problem or str(error)
            if is_first and self._problem != problem:
                self._log(error)
            if isinstance(error, OSError) and error.errno == ENOSPC:
                raise Unavailable("the disk is full") from error
            return False
        return True

    def _log(self, error: Exception) -> None:
        """Log why a file was not copied; what is not expected, as a bug."""
        if isinstance(error, OSError):
            self.log.error(
                "A file for crawlers cannot be copied: {error}; it is tried again later.",
                error=error,
            )
        else:
            self.log.failure("{name} failed; it is tried again in its next turn.", name=self.name)

    # --- copying

    async def _copy_new(self, problem: str) -> None:
        """Copy the documents that were stored since the last time, or all at first."""
        # The clock of the database may have been set back since a document was stored.
        now = self._parts.clock.wall_seconds()
        seen = newest = min(self._seen, now)
        # A document may appear in the database 30 seconds behind one that was stored after it.
        since, name = seen - 30.0, ""
        differing: list[SharedDocument] = []
        while documents := await self._store.documents_since(since, name, AT_ONCE):
            differing += await self._differing(documents)
            name = documents[-1].name
            newest = max(newest, *(min(one.stored_at, now) for one in documents))
        is_done = True
        # The lists first, then the newest archives.
        for one in sorted(differing, key=lambda one: one.name, reverse=True):
            is_done &= await self._attempt(self._copy(one), problem)
            if self._is_hinted or not self.running:
                return
        if is_done:
            self._seen = newest

    async def _differing(self, documents: Sequence[SharedDocument]) -> Sequence[SharedDocument]:
        """Those of some documents whose files are missing or of another version."""
        found: Sequence[SharedDocument] = await self._parts.in_thread(
            lambda: [
                one
                for one in documents
                if _NAME.fullmatch(one.name)
                and not is_version(self._file(one.name), one.size, one.made_at)
            ]
        )
        return found

    def _file(self, name: str) -> FilePath[str]:
        file: FilePath[str] = self._parts.public_directory.descendant(name[1:].split("/"))
        return file

    async def _copy(self, document: SharedDocument) -> bool:
        """Copy a document, unless the file on the disk lists more pings.

        :returns: False if there is a newer version by now.
        :raises OSError: it cannot be written, or is damaged.
        """
        in_thread, file = self._parts.in_thread, self._file(document.name)
        async with self._lock:
            if (await in_thread(records_in, file) or 0) > document.records:
                return True
            if not await self._differing([document]):
                return True  # somebody else who asked for it has had it copied
            copy = Copy(file)
            whole: bool = False
            try:
                await in_thread(copy.begin)
                number = 0
                while (body := await self._store.document_part(document.id, number)) is not None:
                    await in_thread(copy.write, body)
                    number += 1
                whole = await in_thread(copy.publish, document.size, document.made_at)
            finally:
                if not whole:
                    await in_thread(copy.discard)
        if whole:
            self._parts.bus.publish(FileCopied(document.name))
        elif await self._store.shared_documents([document.name]) == [document]:
            raise OSError(f"{document.name} is damaged in the database")
        return whole

    # --- at the start

    async def _store_archives(self, problem: str) -> bool:
        """Store the archives on the disk that are not in the database, or list more pings.

        :returns: whether all of them could be read; False if the service stops.
        """
        paths = await self._parts.in_thread(archives_in, self._parts.public_directory)
        is_done = True
        for start in range(0, len(paths), AT_ONCE):
            names = paths[start : start + AT_ONCE]
            known = await self._store.shared_documents(names)
            differing = {one.name for one in await self._differing(known)}
            stored = {one.name: one.records for one in known}
            for name in names:
                if not self.running:
                    return False
                if name not in stored or name in differing:
                    work = self._store_archive(name, stored.get(name, -1))
                    is_done &= await self._attempt(work, problem)
        return is_done

    async def _store_archive(self, name: str, stored: int) -> None:
        """Store an archive, if it lists more pings than the stored one."""
        in_thread, file = self._parts.in_thread, self._file(name)
        records = await in_thread(records_in, file)
        if records is None or records <= stored:
            return
        with suppress(ClaimLost):  # another node has stored as much meanwhile
            async with drafted(self._parts, file, _UNFINISHED) as draft:
                await in_thread(_read_into, file, draft)
                await publish_draft(self._parts, draft, file, job="", records=records)


def _read_into(file: FilePath[str], draft: Draft) -> None:
    """Write the content of a file to a draft.  Blocks."""
    with file.open() as opened:
        # How many bytes of an archive are read at a time to store it.
        while data := opened.read(1_000_000):
            draft.write(data)
