"""Copies the files for crawlers that other nodes have made to the disk of this node.

``documents`` stores them.  The mirror learns of a new one by a hint, and looks each second in case
a hint was lost.  When the broker starts, the mirror compares the disk with the database: it copies
what is missing, so that a node that joins has every archive of the past; and it stores archives
that the database lacks, which an earlier version, or a broker on SQLite, has left on the disk.

A file that somebody asks for before it is there is copied at once (``copy``).  One that cannot be
copied is tried again after growing pauses, while the others go on: see ``late_copies``.

On SQLite there are no other nodes, and the mirror does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredLock, DeferredSemaphore
from twisted.logger import Logger
from twisted.python.filepath import FilePath
from zope.interface import implementer

from rsscloud_broker.errors import ClaimLost, Unavailable
from rsscloud_broker.events import Event, FileCopied, WorkHinted
from rsscloud_broker.interfaces import IEventSink, SinkParts
from rsscloud_broker.model.shared import SharedDocument
from rsscloud_broker.sinks.documents import drafted, publish_draft
from rsscloud_broker.sinks.files import records_in
from rsscloud_broker.sinks.late_copies import FIRST_PAUSE, LONGEST_PAUSE, LateCopies
from rsscloud_broker.util.atomic_files import Copy, Draft, is_version
from rsscloud_broker.util.backoff import backoff
from rsscloud_broker.util.caches import BoundedDict
from rsscloud_broker.util.retry import StoreRetry

#: How many documents are compared with the disk at a time.
AT_ONCE: Final = 500

#: For how many seconds, and of how many files, the mirror remembers that there is none.
MISSING, MISSING_NAMES = 5.0, 10_000

#: The archive sink may write the same archive at the same time, under the usual name.
_UNFINISHED: Final = ".stored.part"

_ARCHIVES: Final = "[0-9][0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]/[0-9][0-9].xml"

_ARCHIVE: Final = re.compile(r"(?:/[0-9]{4})(?:/[0-9]{2}){2}/[0-9]{2}\.xml")

#: Paths that lead to no file outside of the public directory.
_NAME: Final = re.compile(r"(?:/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)+")


@implementer(IEventSink)
class Mirror(Service):
    """Keeps the public directory of this node equal to the documents in the database."""

    name = "mirror"
    handles: tuple[type[Event], ...] = (WorkHinted,)
    log = Logger()

    def __init__(self, parts: SinkParts) -> None:
        self._parts = parts
        self._store = parts.store
        self._directory = parts.public_directory
        # How many files are copied at the same time.
        self._places = DeferredSemaphore(4)
        self._locks: dict[str, DeferredLock] = {}
        self._missing: BoundedDict[str, float] = BoundedDict(MISSING_NAMES)
        self._seen: float | None = None  # the time of the newest document that was looked at
        self._store_retry = StoreRetry(parts.clock, "Copying files for crawlers")
        self._late = LateCopies(parts.clock)
        self._has_told_faults = False
        self._beginning: Deferred[None] | None = None

    def startService(self) -> None:
        super().startService()
        self._store_retry.stopped = False
        if self._store.shares_work():
            self._beginning = Deferred.fromCoroutine(self._begin())

    def stopService(self) -> None:
        """Stop; what is not copied is copied after the next start."""
        super().stopService()
        self._store_retry.stop()
        if self._beginning is not None:
            self._beginning.cancel()

    async def handle(self, event: Event) -> None:
        is_hint = isinstance(event, WorkHinted) and event.kind in {"", "document"}
        if not (is_hint and self.running) or self._seen is None:
            return
        try:
            # A document may appear in the database so many seconds behind one that was stored after
            # it.
            documents = await self._store.documents_since(self._seen - 30.0)
            timely = [one for one in documents if not self._late.waits(one)]
            for one in await self._differing(timely):
                await self._copy_or_put_off(one)
            self._seen = max([self._seen, *(one.stored_at for one in documents)])
            for one in self._late.due():
                await self._copy_or_put_off(one)
        except Unavailable:
            pass  # the next hint comes in a second

    async def copy(self, name: str) -> bool:
        """Have the present version of a document on the disk.

        :param name: the path at which it is served; any path that a stranger asks for.
        :returns: whether there is such a document, and it is on the disk.
        :raises Unavailable: the database cannot be used.
        :raises OSError: the file cannot be written.
        """
        now = self._parts.clock.seconds()
        if not self._store.shares_work() or now < self._missing.get(name, 0.0):
            return False
        document = await self._store.shared_document(name)
        if document is None:
            self._missing[name] = now + MISSING
            return False
        return not await self._differing([document]) or await self._copy(document)

    # --- copying

    async def _differing(self, documents: Sequence[SharedDocument]) -> Sequence[SharedDocument]:
        """Those of some documents whose files are missing or of another version."""
        if not documents:
            return []
        found: Sequence[SharedDocument] = await self._parts.in_thread(self._compare, documents)
        return found

    def _compare(self, documents: Iterable[SharedDocument]) -> list[SharedDocument]:
        return [
            one
            for one in documents
            if _NAME.fullmatch(one.name)
            and not is_version(self._file(one.name), one.size, one.made_at)
        ]

    def _file(self, name: str) -> FilePath[str]:
        file: FilePath[str] = self._directory.descendant(name[1:].split("/"))
        return file

    async def _copy(self, document: SharedDocument) -> bool:
        """Copy a document, unless somebody else has just done so.

        :returns: False if there is a newer version by now.
        """
        lock = self._locks.setdefault(document.name, DeferredLock())
        async with lock:
            try:
                if not await self._differing([document]):
                    return True
                async with self._places:
                    return await self._copy_now(document)
            finally:
                if not lock.waiting:
                    del self._locks[document.name]

    async def _copy_now(self, document: SharedDocument) -> bool:
        in_thread = self._parts.in_thread
        copy = Copy(self._file(document.name))
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
        return whole

    async def _copy_or_put_off(self, document: SharedDocument) -> bool:
        """Copy a document; if that fails, have it tried again later.

        :returns: whether this version, or a better one, is on the disk.
        :raises Unavailable: the database cannot be used.
        """
        try:
            is_longer: bool = await self._parts.in_thread(self._is_longer, document)
            copied = is_longer or await self._copy(document)
        except OSError as error:
            self._late.put_off(document, error.strerror or str(error), error)
            return False
        except (CancelledError, Unavailable):
            raise
        except Exception as error:  # log a bug; it must not keep other files waiting
            self.log.failure("Copying {name} failed.", name=document.name)
            self._late.put_off(document, f"{document.name} could not be copied", error)
            return False
        newest = document if copied else await self._store.shared_document(document.name)
        if copied or newest is None or newest.id != document.id:
            self._late.over(document.name)
        else:
            self._late.put_off(document, f"{document.name} is damaged in the database")
        return copied

    # --- at the start

    async def _begin(self) -> None:
        with suppress(CancelledError):  # the service stops
            await self._until_done(self._copy_all)
            await self._until_done(self._store_archives)

    async def _until_done(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Repeat some work, after growing pauses, until it is done."""
        failures = 0
        while True:
            try:
                if await self._store_retry(work):
                    return
            except CancelledError:
                raise
            except Exception:  # log a bug; files are copied when they are asked for
                self.log.failure("Files for crawlers could not be compared with the database.")
            await self._store_retry.pause(backoff(FIRST_PAUSE, failures, LONGEST_PAUSE))
            failures += 1

    async def _copy_all(self) -> bool:
        copied = [await self._copy_or_put_off(one) for one in await self._compare_all()]
        if any(copied):
            self.log.info(
                "Copied {count} files for crawlers that other nodes have made.",
                count=sum(copied),
            )
        return True

    async def _compare_all(self) -> list[SharedDocument]:
        """All documents that differ from the disk: the lists first, then the newest archives."""
        missing: list[SharedDocument] = []
        after, newest = "", 0.0
        while documents := await self._store_retry(
            partial(self._store.documents_after, after, AT_ONCE)
        ):
            missing += await self._differing(documents)
            after = documents[-1].name
            newest = max(newest, *(one.stored_at for one in documents))
        self._seen = newest
        return sorted(missing, key=lambda one: one.name, reverse=True)

    def _is_longer(self, document: SharedDocument) -> bool:
        """Whether the archive on the disk lists more pings than a document."""
        if not _ARCHIVE.fullmatch(document.name):
            return False
        return (records_in(self._file(document.name)) or 0) > document.records

    async def _store_archives(self) -> bool:
        """Store the archives on the disk that are not in the database, or list more pings.

        :returns: whether all of them could be read.
        """
        paths = await self._parts.in_thread(self._archives)
        count, faults = 0, list[str]()
        for start in range(0, len(paths), AT_ONCE):
            names = paths[start : start + AT_ONCE]
            known = await self._store.shared_documents(names)
            records = {one.name: one for one in known}
            for name in names:
                try:
                    count += await self._store_archive(name, records.get(name))
                except OSError as error:
                    faults.append(str(error))
        self._tell_stored(count, faults)
        return not faults

    def _tell_stored(self, count: int, faults: Sequence[str]) -> None:
        if count:
            self.log.info(
                "Stored {count} archives for the other nodes that were on the disk of this one.",
                count=count,
            )
        if faults and not self._has_told_faults:
            self._has_told_faults = True
            self.log.error(
                "{count} archives on the disk could not be stored for the other nodes; they are "
                "tried again. The first: {error}",
                count=len(faults),
                error=faults[0],
            )

    def _archives(self) -> list[str]:
        base = Path(self._directory.path)
        return sorted(f"/{file.relative_to(base).as_posix()}" for file in base.glob(_ARCHIVES))

    async def _store_archive(self, name: str, known: SharedDocument | None) -> bool:
        in_thread, file = self._parts.in_thread, self._file(name)
        if known is not None and not await self._differing([known]):
            return False
        records = await in_thread(records_in, file)
        if records is None or (known is not None and known.records >= records):
            return False
        try:
            async with drafted(self._parts, file, _UNFINISHED) as draft:
                await in_thread(_read_into, file, draft)
                await publish_draft(
                    self._parts, draft, file, job="", records=records, only_if_more=True
                )
        except ClaimLost:  # another node has stored as much meanwhile
            return False
        return True


def _read_into(file: FilePath[str], draft: Draft) -> None:
    """Write the content of a file to a draft.  Blocks."""
    with file.open() as opened:
        # How many bytes of an archive are read at a time to store it.
        while data := opened.read(1_000_000):
            draft.write(data)
