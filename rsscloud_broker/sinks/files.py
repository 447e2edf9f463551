"""Writes change lists and archives, each with a gzipped twin.

A list may hold 100,000 pings, and an archive more.  The pings are read from the store in slices;
each is rendered and written in the thread of the sinks, so that the reactor is never blocked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from twisted.python.filepath import FilePath

from rsscloud_broker.interfaces import SinkParts
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import Store
from rsscloud_broker.util.atomic_files import Draft
from rsscloud_broker.wire import change_list
from rsscloud_broker.wire.change_list import Unit

#: How many pings are read and written at a time.
SLICE: Final = 2000


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
