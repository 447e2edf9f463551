"""Writes the files for crawlers, and puts them in their places, on all nodes of a database.

A change list may hold 100,000 pings, and an archive more.  The pings are read from the store in
slices; each is rendered and written in the thread of the sinks, so that the reactor is never
blocked.  Each file has a gzipped twin.

The node that makes a file stores its gzipped bytes, some at a time; ``mirror`` copies them to the
disks of the others.  The file has the same time on all nodes.  The ETag that crawlers get is made
of its size and time, and so is that of a web server which serves the directory itself.

On SQLite there are no other nodes, and nothing is stored: the file on the disk is the only one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from twisted.python.filepath import FilePath

from rsscloud_broker.errors import ClaimLost
from rsscloud_broker.events import FilePublished
from rsscloud_broker.interfaces import SinkParts
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import Store
from rsscloud_broker.util.atomic_files import PART as PART_NAME
from rsscloud_broker.util.atomic_files import Draft
from rsscloud_broker.wire import change_list
from rsscloud_broker.wire.change_list import Unit

#: How many pings are read and written at a time.
SLICE: Final = 2000

#: How many bytes are stored in one transaction, so that no other write waits long.
PART: Final = 256 * 1024


async def write_change_list(
    parts: SinkParts,
    draft: Draft,
    since: float,
    until: float,
    *,
    unit: Unit,
    count: Callable[[], Awaitable[int]],
    limit: int | None = None,
) -> int:
    """Write the change list of the pings with ``since <= received_at < until`` to a draft.

    Ages in it are counted to ``until``.

    :param count: returns how many pings were ever received; see ``Store.count_pings``.
    :param limit: how many pings are listed at most, the newest; None for all.
    :returns: how many pings the list holds.
    :raises Unavailable: the store cannot be read.
    :raises OSError: the file cannot be written.
    """
    slices = _slices(parts.store, since, until, limit)
    pings: Sequence[Ping] = await anext(slices, [])
    # It is counted after the newest pings are read, so the list never holds more than it says were
    # ever received.  A ping that is stored while the older ones are read may wait for the next
    # list.
    total = await count()
    await parts.in_thread(draft.write, change_list.opening(until, total))
    records = 0
    while pings:
        await parts.in_thread(_write_pings, draft, pings, until, unit)
        records += len(pings)
        pings = (await anext(slices, []))[: total - records]
    await parts.in_thread(draft.write, change_list.closing(records))
    return records


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


def _write_pings(draft: Draft, pings: Sequence[Ping], at: float, unit: Unit) -> None:
    """Append pings as records of a change list; ages are counted to ``at``."""
    draft.write(change_list.weblogs(pings, at, unit))


async def _slices(
    store: Store, since: float, until: float, limit: int | None
) -> AsyncIterator[list[Ping]]:
    """The pings of a time in slices, newest first, until there are ``limit`` of them."""
    last: Ping | None = None
    left = sys.maxsize if limit is None else limit
    while left and (pings := await store.pings(since, until, last, min(SLICE, left))):
        yield pings
        last = pings[-1]
        left -= len(pings)


def archives_in(directory: FilePath[str]) -> list[str]:
    """The paths at which the archives on the disk are served, oldest first.  Blocks.

    :param directory: the public directory.
    """
    base = Path(directory.path)
    hours = "[0-9][0-9][0-9][0-9]/[0-9][0-9]/[0-9][0-9]/[0-9][0-9].xml"
    return sorted(f"/{file.relative_to(base).as_posix()}" for file in base.glob(hours))


async def publish_draft(
    parts: SinkParts, draft: Draft, target: FilePath[str], *, job: str, records: int = 0
) -> None:
    """Put a draft in the place of the file, on all nodes.

    :param target: the path of the file.
    :param job: the job that made it, whose claim this node must still have.
    :param records: how many pings are listed in it; 0 if it is no list of pings.
    :raises ClaimLost: this node has lost the claim of the job; the old file stays.
    :raises Unavailable: it cannot be stored for the other nodes.
    :raises OSError: the file cannot be written.
    """
    if parts.store.shares_work():
        made_at = parts.clock.wall_seconds()
        await parts.in_thread(draft.seal, made_at)
        key = await parts.store.begin_document(name_of(parts, target), made_at)
        whole = await _store(parts, draft, key) and await parts.store.finish_document(
            key, draft.size, records, job
        )
        if not whole:
            raise ClaimLost
    await parts.in_thread(draft.publish)


def tell_published(parts: SinkParts, target: FilePath[str]) -> None:
    """Publish on the bus that a file below the public directory was written."""
    parts.bus.publish(FilePublished(name_of(parts, target), parts.clock.wall_seconds()))


async def publish_document(
    parts: SinkParts, target: FilePath[str], content: bytes, *, job: str
) -> None:
    """Put a small file in its place, as ``publish_draft`` does."""
    async with drafted(parts, target) as draft:
        await parts.in_thread(draft.write, content)
        await publish_draft(parts, draft, target, job=job)


@asynccontextmanager
async def drafted(
    parts: SinkParts, target: FilePath[str], unfinished: str = PART_NAME
) -> AsyncIterator[Draft]:
    """A draft of a file, which has begun; it is discarded if it cannot be published.

    :param unfinished: see ``Draft``.
    """
    draft = Draft(target, unfinished)
    try:
        await parts.in_thread(draft.begin)
        yield draft
    except Exception:
        await parts.in_thread(draft.discard)
        raise


async def _store(parts: SinkParts, draft: Draft, key: int) -> bool:
    """Store the bytes of a sealed draft; False if the version was dropped meanwhile."""
    number = 0
    while body := await parts.in_thread(draft.read_twin, number * PART, PART):
        if not await parts.store.put_document_part(key, number, body):
            return False
        number += 1
    return True


def name_of(parts: SinkParts, target: FilePath[str]) -> str:
    """The path at which a file below the public directory is served."""
    return "/" + "/".join(target.segmentsFrom(parts.public_directory))
