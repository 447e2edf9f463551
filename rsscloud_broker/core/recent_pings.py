"""The newest pings, for pages that show them to people; the store is read once a second at most."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rsscloud_broker.interfaces import IClock
from rsscloud_broker.model import Ping
from rsscloud_broker.storage import Store
from rsscloud_broker.util.caches import TimedCache


class RecentPings:
    """Reads the newest ten pings from the store and remembers them for a second."""

    def __init__(self, store: Store, clock: IClock) -> None:
        self._store = store
        self._clock = clock
        # For one second, and with one key, None.
        self._newest: TimedCache[None, Sequence[Ping]] = TimedCache(self._read, clock, 1.0, 1)

    async def newest(self) -> Sequence[Ping]:
        """The newest pings, newest first; the same tuple until the store is read again.

        :raises Unavailable: the store cannot be read.
        """
        return await self._newest.get(None)

    async def _read(self, key: None) -> Sequence[Ping]:
        # A second more, so that rounded times do not leave out a ping of this moment.
        until = self._clock.wall_seconds() + 1
        return await with_titles(self._store, await self._store.pings(0, until, None, 10))


async def with_titles(store: Store, pings: Sequence[Ping]) -> tuple[Ping, ...]:
    """Some pings for people to read: one without a name has the title of its topic, if strangers
    may know that.

    :raises Unavailable: the store cannot be read.
    """
    nameless = {ping.url for ping in pings if ping.name == ping.url}
    titles = await store.topic_titles(nameless) if nameless else {}
    return tuple(
        evolve(ping, name=titles.get(ping.url, ping.url)) if ping.name == ping.url else ping
        for ping in pings
    )
