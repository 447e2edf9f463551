"""Files for crawlers: made beside the old ones, then moved into their place.

A crawler, or a web server in front of the broker, must never see half a file.
So a change list grows as ``NAME.part`` and its gzipped twin as
``NAME.gz.part``; once both are on disk they are renamed over the old ones.

A list may hold 100,000 pings, and an archive more.  They are read, rendered and written slice by
slice, the last two in the thread of the sinks, so the reactor never does more
than hand the next slice over.  Once a file is in its place, ``FilePublished`` says so.
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

#: How many pings are in memory, and in one piece of work, at most.
SLICE: Final = 2000

_GZIP_WINDOW: Final = 31  # zlib: the largest window, and the gzip format


class Draft:
    """A file and its gzipped twin in the making.

    Every method blocks, and raises ``OSError`` where the disk does not do its
    part; after that, only ``discard`` makes sense.

    :param target: what the file is to be called; the twin adds ``.gz``.
    """

    def __init__(self, target: FilePath[str]) -> None:
        # The twin goes first: whoever finds the plain file whole (see
        # ``records_in``) can rely on its twin, even after a crash between them.
        self._targets = (target.siblingExtension(".gz"), target)
        self._files: list[IO[bytes]] = []
        # Unlike the gzip module this writes no time into the header: the same
        # content makes the same bytes.
        self._packer = zlib.compressobj(wbits=_GZIP_WINDOW)

    def begin(self) -> None:
        """Open the files, in a directory that is made where it is missing."""
        self._targets[0].parent().makedirs(ignoreExistingDirectory=True)
        for target in self._targets:
            self._files.append(_part(target).open("w"))

    def write(self, data: bytes) -> None:
        """Append to the files."""
        packed, plain = self._files
        packed.write(self._packer.compress(data))
        plain.write(data)

    def write_pings(self, pings: Sequence[Ping], at: float, unit: Unit) -> None:
        """Append some records of a change list."""
        self.write(change_list.weblogs(pings, at, unit))

    def publish(self) -> None:
        """Bring the files to disk, then put them in place of the old ones."""
        self._files[0].write(self._packer.flush())
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        for target in self._targets:
            os.replace(_part(target).path, target.path)
        _sync_directory(self._targets[0].parent())

    def discard(self) -> None:
        """Remove what there is of the files.  Never raises for a bad disk."""
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
    most: int | None = None,
) -> int:
    """Make the change list of the pings with ``since <= received_at < until``.

    Ages in it are counted to ``until``.  Where it cannot be made, the old file
    stays as it is and nothing is left behind.

    :param count: the number of pings ever received.
    :param most: of more pings the newest are listed; None for all.
    :returns: how many pings the list holds.
    :raises Unavailable: the store cannot be read.
    :raises OSError: the file cannot be written.
    """
    draft = Draft(target)
    records = 0
    try:
        await parts.in_thread(draft.begin)
        await parts.in_thread(draft.write, change_list.opening(until, count))
        async for pings in _slices(parts.store, since, until, most):
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
    """Make a small file and its twin at once.  Blocks.

    :raises OSError: it cannot be written; the old file stays as it is.
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
    """Say on the bus that a file below the public directory is there, or there anew."""
    path = "/".join(target.segmentsFrom(parts.public_directory))
    parts.bus.publish(FilePublished(f"/{path}", parts.clock.wall_seconds()))


def records_in(target: FilePath[str]) -> int | None:
    """How many records a published change list holds.  Blocks.

    Only its end is read, whatever its size.

    :returns: None where there is no such file, or it is not whole.
    """
    try:
        with target.open() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - change_list.CLOSING_SIZE))
            return change_list.records_told(file.read())
    except FileNotFoundError:
        return None


async def _slices(
    store: IStore, since: float, until: float, most: int | None
) -> AsyncIterator[list[Ping]]:
    last: Ping | None = None
    left = sys.maxsize if most is None else most
    while left and (pings := await store.pings(since, until, last, min(SLICE, left))):
        yield pings
        last = pings[-1]
        left -= len(pings)


def _part(target: FilePath[str]) -> FilePath[str]:
    # Always the same name: what a crash left behind is overwritten, not piled up.
    return target.siblingExtension(".part")


def _sync_directory(directory: FilePath[str]) -> None:
    # A rename is on disk only when the directory is.
    descriptor = os.open(directory.path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
