"""Writes change lists and archives, each with a gzipped twin.

``documents`` puts them in the place of the old files, on all nodes.  Then ``FilePublished`` is
published on the bus.

A list may hold 100,000 pings, and an archive more.  The pings are read from the store in slices;
each is rendered and written in the thread of the sinks, so that the reactor is never blocked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Final

from twisted.python.filepath import FilePath

from rsscloud_broker.interfaces import IStore, SinkParts
from rsscloud_broker.model import Ping
from rsscloud_broker.sinks.documents import publish_draft, tell_published
from rsscloud_broker.util.atomic_files import Draft
from rsscloud_broker.wire import change_list
from rsscloud_broker.wire.change_list import Unit

#: How many pings are read and written at a time.
SLICE: Final = 2000


async def publish_change_list(
    parts: SinkParts,
    target: FilePath[str],
    since: float,
    until: float,
    *,
    unit: Unit,
    job: str,
    limit: int | None = None,
    only_if_more: bool = False,
) -> int:
    """Write the change list of the pings with ``since <= received_at < until``, and its twin.

    Ages in it are counted to ``until``.  If this fails, the old file stays and the unfinished
    ones are deleted.

    :param target: the path of the change list.
    :param job: the job that this is a part of, which this node has claimed.
    :param limit: how many pings are listed at most, the newest; None for all.
    :param only_if_more: whether the list must hold more pings than the one before, if other nodes
        may have made that.
    :returns: how many pings the list holds.
    :raises ClaimLost: another node has the job now.
    :raises Unavailable: the store cannot be read or written.
    :raises OSError: the file cannot be written.
    """
    draft = Draft(target)
    records = 0
    try:
        await parts.in_thread(draft.begin)
        slices = _slices(parts.store, since, until, limit)
        pings: Sequence[Ping] = await anext(slices, [])
        # It is counted after the newest pings are read, so the list never holds more than it says
        # were ever received.  A ping that is stored while the older ones are read may wait for the
        # next list.
        count = await parts.store.count_pings()
        await parts.in_thread(draft.write, change_list.opening(until, count))
        while pings:
            await parts.in_thread(_write_pings, draft, pings, until, unit)
            records += len(pings)
            pings = (await anext(slices, []))[: count - records]
        await parts.in_thread(draft.write, change_list.closing(records))
        await publish_draft(
            parts, draft, target, job=job, records=records, only_if_more=only_if_more
        )
    except Exception:
        await parts.in_thread(draft.discard)
        raise
    tell_published(parts, target)
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
    store: IStore, since: float, until: float, limit: int | None
) -> AsyncIterator[list[Ping]]:
    last: Ping | None = None
    left = sys.maxsize if limit is None else limit
    while left and (pings := await store.pings(since, until, last, min(SLICE, left))):
        yield pings
        last = pings[-1]
        left -= len(pings)
