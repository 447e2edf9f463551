"""The new items for the browsers that show a river, as server-sent events: ``/river/events``.

::

    id: 1234
    data: {"id": 1234, "feed": 7, "html": "<section ...>"}

    id: 1240                all items up to this one were sent; sent when nothing else is

    event: gap              too many items were missed to be sent; the page has them
    data: 0

Each browser gets the items of the feeds that its account follows, and no others.  However many
watch, a new item is read once and made into HTML once, in a thread.  A browser whose connection
broke long ago gets what its account missed by reads of its own.  So nothing is lost, though an item
may come twice, which the script notices by its id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from attrs import define, frozen
from twisted.internet.defer import DeferredSemaphore

from rsscloud_broker.apps.river.model import Arrival
from rsscloud_broker.apps.river.rendering import event
from rsscloud_broker.apps.river.store import RiverStore
from rsscloud_broker.interfaces import IClock
from rsscloud_broker.util.caches import BoundedDict, TimedCache
from rsscloud_broker.web.broadcast import EventPage, id_heartbeat

#: How many items of all feeds may be between a browser and the newest one until it gets those of
#: its account by reads of its own; and how many it gets before it has the newest one.
NEAR, MOST_MISSED = 100, 200

#: How many items are read at a time, and how many reads run at the same time.
PART, READERS = 20, 4

#: How many bytes of events a browser gets at a time, at least one event.
MAX_PAGE: Final = 64 * 1024

_GAP: Final = b"event: gap\nid: %d\ndata: 0\n\n"


@define
class RiverReader:
    """One browser that shows a river.

    :ivar account_id: whose river it is.
    :ivar missed: how many items it got since it last had the newest one.
    """

    account_id: int
    missed: int = 0


@frozen
class _Events:
    """The events of some items: each with the accounts that follow its feed.

    :ivar after: the id up to which these are all.
    """

    events: tuple[tuple[frozenset[int], bytes], ...]
    after: int


#: The account, or None for all; and two ids of items.
_Key = tuple[int | None, int, int]


class RiverSource:
    """The source of the browsers that show a river.  Positions are ids of items."""

    heartbeat = staticmethod(id_heartbeat)

    def __init__(
        self, store: RiverStore, clock: IClock, in_thread: Callable[..., Awaitable[Any]]
    ) -> None:
        self._store = store
        self._in_thread = in_thread
        self._reads = DeferredSemaphore(READERS)
        # How many events are kept, for those who read the same a moment later.
        self._made_events: BoundedDict[Arrival, bytes] = BoundedDict(200)
        # How many pages are kept, and for how many seconds: an item may be edited meanwhile.
        self._pages: TimedCache[_Key, _Events] = TimedCache(self._read_events, clock, 5.0, 32)

    async def newest(self, before: int | None) -> int:
        """The id of the newest item; those since ``before`` are read ahead, if they are few."""
        newest: int = await self._store.newest_id()
        if before is not None and before < newest <= before + NEAR:
            with suppress(Exception):  # those who want the page learn what is wrong
                await self._pages.get((None, before, newest))
        return newest

    async def page(self, wanted: RiverReader, after: int, until: int) -> EventPage[int]:
        """The events of a browser's items between two ids; a gap if it has missed too many."""
        if after >= until:
            return EventPage(b"", until)  # a position that there never was
        is_near = until - after <= NEAR  # then all browsers share a page, which ``newest`` has read
        if wanted.missed >= MOST_MISSED:
            wanted.missed = 0
            return EventPage(_GAP % until, until)
        found = await self._pages.get((None if is_near else wanted.account_id, after, until))
        mine = [data for accounts, data in found.events if wanted.account_id in accounts]
        wanted.missed = wanted.missed + len(mine) if found.after < until else 0
        return EventPage(b"".join(mine), found.after)

    async def _read_events(self, key: _Key) -> _Events:
        """The events of the first items between two ids, as many as are read and sent at a time."""
        account_id, after, until = key
        found = await self._reads.run(self._store.arrivals, after, until, PART, account_id)
        wanted = [each for each in found if not self._made_events.get(each, b"")]
        made: dict[Arrival, bytes] = await self._in_thread(_make_events, wanted) if wanted else {}
        events: list[tuple[frozenset[int], bytes]] = []
        size, last = 0, until if len(found) < PART else found[-1].item.id
        for number, arrival in enumerate(found):
            data = made.get(arrival) or self._made_events.get(arrival, b"")
            self._made_events[arrival] = data
            size += len(data)
            if number and size > MAX_PAGE:
                last = found[number - 1].item.id
                break
            events.append((arrival.accounts, data))
        return _Events(tuple(events), last)


def _make_events(arrivals: Iterable[Arrival]) -> dict[Arrival, bytes]:
    """The events of some items.  It runs in a thread."""
    return {arrival: event(arrival) for arrival in arrivals}
