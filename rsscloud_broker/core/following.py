"""Follows what administrators do, here and in other processes on the same database.

Each change is a row in the store.  Every few seconds, and after each change in this process, this
service reads the newest rows.  It loads the blocks and the announcements anew, tells the
distribution which hosts are free again, and discards what is cached of changed topics.  Then it
publishes ``Administered`` for each change that no process has published yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred, DeferredLock

from rsscloud_broker.events import Administered, HostFreed
from rsscloud_broker.interfaces import IClock, IEventBus
from rsscloud_broker.model.administration import Announcement, Change
from rsscloud_broker.policy.blocks import Blocks
from rsscloud_broker.storage import Store
from rsscloud_broker.util.clock import EachPeriod

#: How many changes are read at a time; and how many of the last ones are read again each time,
#: because on PostgreSQL a change may be stored before one with a smaller id.
AT_ONCE, AGAIN = 200, 50

#: How many announcements there may be.
MAX_ANNOUNCEMENTS: Final = 100

#: The verbs whose object is the URL of a topic; for ``move``, the URL that the topic has left.
_OF_TOPICS: Final = frozenset({"revive", "end", "take down", "move"})


class Following(EachPeriod):
    """Keeps this process up to date with what administrators do.

    :param blocks: is given the blocks.
    :param forget: discards what is cached of a topic.
    """

    def __init__(
        self,
        store: Store,
        bus: IEventBus,
        clock: IClock,
        blocks: Blocks,
        forget: Callable[[str], None],
    ) -> None:
        # Seconds between two looks.
        super().__init__(clock, 2.0, self.look, name="administration", at_start=True)
        self._store = store
        self._bus = bus
        self._blocks = blocks
        self._forget = forget
        self._lock = DeferredLock()
        # The greatest id of a followed change, None before the first look; and the ids of the last
        # followed changes, which are read again.
        self._last: int | None = None
        self._seen: set[int] = set()
        #: Whether changes may wait to be published; still true if the store was not available.
        self._must_publish = True
        self._announcements: Sequence[Announcement] = ()

    def current(self) -> Sequence[Announcement]:
        """The announcements to be shown now, oldest first.  Reads memory only."""
        now = self._clock.wall_seconds()
        return [
            one
            for one in self._announcements
            if one.since <= now and (one.until is None or now < one.until)
        ]

    async def look(self) -> None:
        """Follow all changes that are stored by now.

        :raises Unavailable: the store cannot be used; the next look follows them.
        """
        await self._lock.run(lambda: Deferred.fromCoroutine(self._follow_new()))

    async def _follow_new(self) -> None:
        """Follow the changes since the last look, or those from before the start at the first."""
        if self._last is None:
            last = await self._store.last_change()
            known = await self._store.changes_after(last - AGAIN, AT_ONCE)
            await self._load()
            self._follow_earlier(known)
            self._seen.update(change.id for change in known)
            self._last = max(self._seen, default=0)
        elif changes := await self._new_changes(self._last):
            await self._load()
            for change in changes:
                self._follow(change)
            self._seen.update(change.id for change in changes)
            self._last = max(self._last, *(change.id for change in changes))
            self._seen = {key for key in self._seen if key > self._last - 2 * AGAIN}
            self._must_publish = True
        if self._must_publish:
            await self._publish()
            self._must_publish = False

    async def _new_changes(self, last: int) -> list[Change]:
        """The changes after the last one that was followed, and late ones from before it."""
        found: list[Change] = []
        after = last - AGAIN
        while changes := await self._store.changes_after(after, AT_ONCE):
            found += [one for one in changes if one.id not in self._seen]
            after = changes[-1].id
        return found

    async def _load(self) -> None:
        self._blocks.change(await self._store.all_blocks())
        self._announcements = await self._store.announcements(0, MAX_ANNOUNCEMENTS)

    def _follow(self, change: Change) -> None:
        """Forget what is cached of the topics of a change, or publish that its host is free."""
        if change.verb in _OF_TOPICS:
            for url in change.object.split():  # ``move`` names both URLs
                self._forget(url)
        elif host := _freed_by(change):
            self._bus.publish(HostFreed(host))

    def _follow_earlier(self, changes: Sequence[Change]) -> None:
        """Follow those changes from before the start that may have been followed by half."""
        # Hosts that were freed in the last two hours are freed once more: the process that was
        # notified may have ended before it made due what waited, which waits no longer than this.
        since = self._clock.wall_seconds() - 7200.0
        for host in {_freed_by(change): None for change in changes if change.at >= since}:
            if host:
                self._bus.publish(HostFreed(host, before_start=True))

    async def _publish(self) -> None:
        for one in await self._store.claim_unpublished():
            self._bus.publish(Administered(one.account, one.verb, one.object, one.reason, one.at))


def _freed_by(change: Change) -> str:
    """The host that may be called again because of a change; empty if there is none."""
    if change.verb == "close breaker":
        return change.object
    is_of_host = change.verb == "unblock" and change.object.startswith("host ")
    return change.object.removeprefix("host ") if is_of_host else ""
