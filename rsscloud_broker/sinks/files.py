"""Writes files for crawlers, each with a gzipped twin, and replaces old ones atomically.

The sinks for change lists, archives and ResourceSync use it.  A crawler, or a web server in front
of the broker, must never see half a file.  So a file is written as ``NAME.part`` and its gzipped
twin as ``NAME.gz.part``; when both are on disk they are renamed over the old ones.  Then
``FilePublished`` is published on the bus.

A list may hold 100,000 pings, and an archive more.  The pings are read from the store in slices;
each is rendered and written in the thread of the sinks, so that the reactor is never blocked.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import IO, Final

from twisted.python.filepath import FilePath

from rsscloud_broker.events import FilePublished
from rsscloud_broker.interfaces import IStore, SinkParts
from rsscloud_broker.model import Ping
from rsscloud_broker.wire import change_list
from rsscloud_broker.wire.change_list import Unit

#: How many pings are read and written at a time.
SLICE: Final = 2000

_GZIP_WINDOW: Final = 31  # zlib: the largest window, and the gzip format


class Draft:
    """A file and its gzipped twin while they are written.

    Every method blocks, and raises ``OSError`` if the disk fails; after that the caller must
    call ``discard``.

    :param target: the path of the finished file; that of the twin has ``.gz`` added.
    """

    def __init__(self, target: FilePath[str]) -> None:
        # The twin is renamed first: after a crash between the two, a whole plain file (see
        # ``records_in``) has a whole twin.
        self._targets = (target.siblingExtension(".gz"), target)
        self._files: list[IO[bytes]] = []
        # Unlike the gzip module this writes no time into the header, so the same content
        # gives the same bytes.
        self._compressor = zlib.compressobj(wbits=_GZIP_WINDOW)

    def begin(self) -> None:
        """Open both files, and create their directory if it is missing."""
        self._targets[0].parent().makedirs(ignoreExistingDirectory=True)
        for target in self._targets:
            self._files.append(_part(target).open("w"))

    def write(self, data: bytes) -> None:
        """Append to both files."""
        gzipped, plain = self._files
        gzipped.write(self._compressor.compress(data))
        plain.write(data)

    def write_pings(self, pings: Sequence[Ping], at: float, unit: Unit) -> None:
        """Append pings as records of a change list; ages are counted to ``at``."""
        self.write(change_list.weblogs(pings, at, unit))

    def publish(self) -> None:
        """Sync both files to disk, then rename them over the old ones."""
        self._files[0].write(self._compressor.flush())
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for target in self._targets:
            os.replace(_part(target).path, target.path)
        _sync_directory(self._targets[0].parent())

    def discard(self) -> None:
        """Close and delete the unfinished files.  Does not raise ``OSError``."""
        for file in self._files:
            with suppress(OSError):
                file.close()
        for target in self._targets:
            with suppress(OSError):
                _part(target).remove()


async def publish_change_list(
    parts: SinkParts,
    target: FilePath[str],
    since: float,
    until: float,
    *,
    unit: Unit,
    count: int,
    limit: int | None = None,
) -> int:
    """Write the change list of the pings with ``since <= received_at < until``, and its twin.

    Ages in it are counted to ``until``.  If this fails, the old file stays and the unfinished
    ones are deleted.

    :param target: the path of the change list.
    :param count: the number of pings ever received.
    :param limit: how many pings are listed at most, the newest; None for all.
    :returns: how many pings the list holds.
    :raises Unavailable: the store cannot be read.
    :raises OSError: the file cannot be written.
    """
    draft = Draft(target)
    records = 0
    try:
        await parts.in_thread(draft.begin)
        await parts.in_thread(draft.write, change_list.opening(until, count))
        async for pings in _slices(parts.store, since, until, limit):
            await parts.in_thread(draft.write_pings, pings, until, unit)
            records += len(pings)
        await parts.in_thread(draft.write, change_list.closing(records))
        await parts.in_thread(draft.publish)
    except Exception:
        await parts.in_thread(draft.discard)
        raise
    tell_published(parts, target)
    return records


def publish_file(target: FilePath[str], content: bytes) -> None:
    """Write a small file and its twin.  Blocks.

    :raises OSError: a file cannot be written; the old ones stay.
    """
    draft = Draft(target)
    try:
        draft.begin()
        draft.write(content)
        draft.publish()
    except Exception:
        draft.discard()
        raise


def tell_published(parts: SinkParts, target: FilePath[str]) -> None:
    """Publish on the bus that a file below the public directory was written."""
    path = "/".join(target.segmentsFrom(parts.public_directory))
    parts.bus.publish(FilePublished(f"/{path}", parts.clock.wall_seconds()))


def records_in(target: FilePath[str]) -> int | None:
    """How many records a published change list says it holds.  Blocks.

    Only the end of the file is read.

    :returns: None if there is no such file, or it is not whole.
    """
    try:
        with target.open() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - change_list.CLOSING_SIZE))
            return change_list.records_told(file.read())
    except FileNotFoundError:
        return None


async def _slices(
    store: IStore, since: float, until: float, limit: int | None
) -> AsyncIterator[list[Ping]]:
    last: Ping | None = None
    left = sys.maxsize if limit is None else limit
    while left and (pings := await store.pings(since, until, last, min(SLICE, left))):
        yield pings
        last = pings[-1]
        left -= len(pings)


def _part(target: FilePath[str]) -> FilePath[str]:
    # Always the same name, so that files which a crash left behind are overwritten.
    return target.siblingExtension(".part")


def _sync_directory(directory: FilePath[str]) -> None:
    # A rename is on disk only when the directory is.
    descriptor = os.open(directory.path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
